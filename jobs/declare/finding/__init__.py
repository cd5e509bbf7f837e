"""Finds and loads declarations."""
