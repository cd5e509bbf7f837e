"""What a service allows: calls at once, calls of a time, money."""
