"""The driver's side of a run: plan, prefetch, metrics and record."""
