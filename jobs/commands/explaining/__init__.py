"""Finds where the cells of a published row come from."""
