"""The assets of an enrichment, and what Dagster is told of their days."""
