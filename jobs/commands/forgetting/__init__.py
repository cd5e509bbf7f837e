"""Removes everything that `tidegate forget` removes."""
