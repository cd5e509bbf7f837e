"""What Dagster loads: assets, checks, jobs, schedules and sensors of everything in `enrichments/`."""

from tidegate.dagster import definitions_for

defs = definitions_for("enrichments")
