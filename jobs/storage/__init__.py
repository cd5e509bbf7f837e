"""Files: listed and read by path or URL, and written so that they survive a power cut."""
