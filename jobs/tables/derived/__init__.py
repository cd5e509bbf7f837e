"""Tables that are computed from a published one: summaries and windows."""
