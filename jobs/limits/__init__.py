"""One limit per service over runs: who may have how much of it now, decided in plain data, kept in a thin store."""
