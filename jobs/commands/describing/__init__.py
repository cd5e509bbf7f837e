"""Declarations from what a service says of itself."""
