"""Other forms in which a published table is shown: Iceberg, folders of Parquet."""
