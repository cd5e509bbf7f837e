"""Dagster's page with the reports beside it."""
