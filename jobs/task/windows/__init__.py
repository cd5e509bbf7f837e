"""What tasks do for the window tables of a day."""
