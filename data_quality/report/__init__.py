"""The report: pages built from run records, which open from a disk without a network."""
