"""What a run will do, decided and refused before any work."""
