"""Asks anew: the dead letters of a day, or stored answers that meet a condition."""
