"""`tidegate ui`: serves Dagster and the reports of the current workspace, until Ctrl-C."""

import argparse

from tidegate.commands.command import Command, no_arguments


def _run(_: argparse.Namespace) -> int:
    from orchestration.dagster.web import ui

    return ui.serve({})


COMMAND = Command(no_arguments, _run, needs=("dagster",))
