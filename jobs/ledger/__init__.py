"""The call ledger: a persistent response cache in Parquet, so that no answer that came back is paid for again."""
