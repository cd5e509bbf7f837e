"""What `tidegate try` shows."""
