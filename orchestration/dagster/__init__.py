"""Dagster: all of it follows from the declarations."""
