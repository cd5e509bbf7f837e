"""A declaration tried on a few rows: nothing written, real calls."""
