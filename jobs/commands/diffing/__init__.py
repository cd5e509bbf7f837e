"""Compares two versions of a published day, or a day with what a changed declaration makes of it."""
