"""The window tables of a day."""
