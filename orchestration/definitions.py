"""The code location that workspaces name: everything that the modules of `enrichments/` declare."""

from orchestration.dagster.definitions import definitions_for
from orchestration.dagster.sensors.dead_runs import signing_executor

defs = definitions_for("enrichments", executor=signing_executor)
