"""Runs a day again: asks dead letters or chosen stored answers anew, or maps stored answers."""
