"""Clients of outside systems. They translate the systems' errors into Tidegate's."""
