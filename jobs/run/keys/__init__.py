"""A day's distinct keys: stored, called first, or called by another run."""
