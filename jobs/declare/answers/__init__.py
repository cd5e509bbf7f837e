"""Answers and the values in them: JSON, types, casts, conditions."""
