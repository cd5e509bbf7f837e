"""The metrics of a run, and its progress."""
