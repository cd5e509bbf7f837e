"""What a run counts, and how it reports progress."""
