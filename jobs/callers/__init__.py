"""The executor's side of the lookups: what makes a call, and what can go wrong with it."""
