"""The leases of days: a lease allows a single run of a day at a time."""
