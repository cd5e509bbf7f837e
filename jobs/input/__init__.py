"""A partition's files, their types and their keys."""
