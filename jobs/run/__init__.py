"""The driver's side of one run: what is planned, asked first, counted and recorded."""
