"""The tables that readers see: published days, their audit and dead letters, and summaries."""
