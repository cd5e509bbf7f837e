"""Concurrent runs with the same keys take turns: a task claims keys before it calls for them."""
