"""Tables that are computed from a published table: summaries and windows."""
