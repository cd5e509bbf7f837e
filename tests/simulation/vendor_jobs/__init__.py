"""Nights of vendor jobs: runs, people and kills at a vendor with eight ways of working."""
