"""A partition's files, their types, and the keys in them."""
