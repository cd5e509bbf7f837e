"""The thread that stores the answers of a task."""
