"""Nights of publishing: the real code from the lease of a day to its readers, on a real folder."""
