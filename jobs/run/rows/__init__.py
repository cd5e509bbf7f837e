"""The rows of a day with their keys, as Spark or Arrow reads them."""
