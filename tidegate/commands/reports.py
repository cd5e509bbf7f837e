"""`tidegate reports`: serves the tables' pages and Spark's logs to the browser of this machine."""

import argparse

from tidegate.commands.command import Command, add_package


def _run(options: argparse.Namespace) -> int:
    from orchestration.common import serve_reports

    return serve_reports.main(options.package)


COMMAND = Command(add_package, _run, needs=("spark",))
