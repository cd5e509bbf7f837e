"""Streams: run a declaration on files as they arrive, a micro-batch at a time."""
