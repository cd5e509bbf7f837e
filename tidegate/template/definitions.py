"""Loaded by Dagster: assets, checks, jobs, schedules and sensors of all in `enrichments/`."""

from tidegate.dagster import definitions_for, signing_executor

defs = definitions_for("enrichments", executor=signing_executor)
