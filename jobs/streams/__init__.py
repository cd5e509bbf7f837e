"""Streams: a declaration run on files as they come, a micro-batch at a time."""
