"""Finds the rows of a day that changed since it was published."""
