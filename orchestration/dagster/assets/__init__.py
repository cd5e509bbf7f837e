"""The assets of an enrichment, and the events of their days."""
