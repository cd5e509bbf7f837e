"""`tidegate reports`: serves the reports and Spark's logs to the browser of this machine."""

import argparse

from tidegate.commands.command import Command, no_arguments


def _run(_: argparse.Namespace) -> int:
    from orchestration.common import report_server

    return report_server.main()


COMMAND = Command(
    "reports", "serve reports and Spark's logs to this machine's browser", no_arguments, _run
)
