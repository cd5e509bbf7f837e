"""What `tidegate forget` removes."""
