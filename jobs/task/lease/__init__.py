"""The task's part of a service's limits."""
