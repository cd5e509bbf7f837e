"""`tidegate.enrich`: answers beside a frame of Spark, Arrow, pandas or Polars."""
