"""The keys of a day's rows, evaluated by Arrow where possible."""
