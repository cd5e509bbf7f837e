"""Keys that jobs of a vendor answer: submitted, watched, read, billed; and the days that wait."""
