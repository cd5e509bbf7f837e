"""`tidegate ui`: serves Dagster and the reports of the current workspace, until Ctrl-C."""

import argparse

from tidegate.commands.command import Command, no_arguments


def _run(_: argparse.Namespace) -> int:
    from orchestration.dagster.web import ui

    return ui.serve({})


COMMAND = Command(
    "ui",
    "Dagster and the reports for the workspace.yaml here, until Ctrl-C",
    no_arguments,
    _run,
    needs=("dagster",),
)
