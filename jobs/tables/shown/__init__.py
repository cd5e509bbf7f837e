"""Where a published table is shown besides: Iceberg, folders of Parquet."""
