"""Writes of a task's answers: a buffer of records, and the thread that stores them."""
