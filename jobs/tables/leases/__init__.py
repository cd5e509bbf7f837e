"""The leases of days: one run of a day at a time."""
