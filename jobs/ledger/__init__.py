"""The call ledger: a persistent response cache in Parquet, so that no answer is paid for twice."""
