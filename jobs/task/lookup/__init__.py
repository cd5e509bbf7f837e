"""The calls of one lookup: shared, cached, hedged, stored before their rows leave."""
