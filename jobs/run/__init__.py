"""The driver's side of one run: plan, prefetch, metrics and record."""
