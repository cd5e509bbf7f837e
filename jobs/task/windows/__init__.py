"""The tasks that make the window tables of a day."""
