"""What users declare, free of Spark and clients so that it loads fast."""
