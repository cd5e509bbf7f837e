"""A declaration tried on a few rows: no Spark, nothing written, real calls."""
