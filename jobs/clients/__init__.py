"""Clients of outside systems, which translate their errors into Tidegate's."""
