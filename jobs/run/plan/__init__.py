"""Decides what a run will do, and refuses it before any work."""
