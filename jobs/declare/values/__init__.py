"""The values in declarations, each with its check."""
