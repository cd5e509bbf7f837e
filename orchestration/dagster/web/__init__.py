"""Dagster's page together with the reports."""
