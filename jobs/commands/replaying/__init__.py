"""Replays of dead letters: what `tidegate replay` sends again."""
