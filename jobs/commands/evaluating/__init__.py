"""Compares variants of a lookup on a sample of rows."""
