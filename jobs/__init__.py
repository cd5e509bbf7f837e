"""PySpark: each folder is a stage of a row's way, and imports only folders below it
(docs/design.md).

Empty on purpose, so that `jobs.schema` can be imported without Spark.
"""
