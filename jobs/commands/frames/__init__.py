"""`tidegate.enrich`: puts answers beside the rows of a Spark, Arrow, pandas or Polars frame."""
