"""What the checks read: the files of a run, its input, and what was published."""
