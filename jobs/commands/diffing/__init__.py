"""Compares two versions of a published day, or what two declarations make of a day."""
