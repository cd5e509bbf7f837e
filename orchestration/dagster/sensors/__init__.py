"""Dagster's sensors: they start days, report days, and alert people."""
