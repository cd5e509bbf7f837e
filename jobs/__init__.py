"""PySpark: declarations, the bridge from a partition to the operator, lookups, publishing.

Empty on purpose, so that `jobs.schema` can be imported without Spark.
"""
