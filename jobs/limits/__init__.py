"""Limits of a service over all runs: decided in plain data, kept in a thin store."""
