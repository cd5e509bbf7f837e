"""The code location that workspaces name: everything that the modules of `enrichments/` declare."""

from orchestration.dagster.definitions import definitions_for

defs = definitions_for("enrichments")
