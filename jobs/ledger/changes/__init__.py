"""What changes a ledger beside runs: compaction and erasure."""
