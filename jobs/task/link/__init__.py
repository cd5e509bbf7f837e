"""The task's connection to the driver."""
