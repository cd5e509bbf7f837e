"""The driver's side of the tasks' links: shares of the calls in flight, and leases over runs."""
