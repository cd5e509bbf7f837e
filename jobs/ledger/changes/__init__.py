"""Changes of a ledger by commands instead of runs: compaction and erasure."""
