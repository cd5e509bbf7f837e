"""Delta tables: their logs, their files, and the locks of their publishers."""
