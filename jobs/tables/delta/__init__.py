"""Delta tables: their log, their files, and who may write to them."""
