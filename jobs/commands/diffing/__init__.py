"""Compares two versions of a published day."""
