"""Asks anew: the dead letters of a day (`replay`), and stored answers by a condition (`refresh`)."""
