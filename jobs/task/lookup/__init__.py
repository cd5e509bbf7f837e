"""The calls of a lookup: shared, cached, hedged, stored before their rows leave."""
