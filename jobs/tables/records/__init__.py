"""The records of runs, and their bills."""
