"""Starts Dagster's web page and the report server together, and ends them together.

Run it with `python -m orchestration.dagster.web.ui`; the page is http://127.0.0.1:3000, and
TIDEGATE_UI_PORT and TIDEGATE_REPORTS_PORT set the ports.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestration.common import report_server
from orchestration.common.report_server import REPORTS_PORT, REPORTS_URL
from orchestration.common.serving import serve_together
from orchestration.dagster.home import UI_URL, dagster_home

WORKSPACE = Path("workspace.yaml")  # of the project in the current folder
UI_PORT = "TIDEGATE_UI_PORT"
GRACE = 20.0  # s; Dagster cancels the running runs, each of which ends its Spark


def serve(
    environment: Mapping[str, str],
    others: Sequence[list[str]] = (),
    ports: Mapping[str, str] | None = None,
) -> int:
    """Run the report server, `others` and `dagster dev` until any of them ends or Ctrl-C; then
    ends all.

    Nothing is started while a port is taken: dagster dev would go on without its page.

    Args:
        environment: Variables added to ours.
        others: Further commands.
        ports: Ports of `others`, by the variable that sets each.

    Returns:
        The exit status.
    """
    reports = os.environ.get(REPORTS_PORT, "3070")
    port = os.environ.get(UI_PORT, "3000")
    environment = {
        "DAGSTER_HOME": str(dagster_home()),
        REPORTS_PORT: reports,
        REPORTS_URL: os.environ.get(REPORTS_URL) or f"http://127.0.0.1:{reports}",
        UI_URL: os.environ.get(UI_URL) or f"http://127.0.0.1:{port}",
        # advice to us, not to the user
        "PYTHONWARNINGS": "ignore:Function `dev_command` is superseded",
        **environment,
    }
    dagster = Path(sys.executable).parent / "dagster"
    commands = [
        [sys.executable, "-m", report_server.PROGRAM],
        *others,
        [str(dagster), "dev", "-w", str(WORKSPACE), "-h", "127.0.0.1", "-p", port],
    ]
    return serve_together(
        commands,
        environment,
        ports={UI_PORT: port, REPORTS_PORT: reports, **(ports or {})},
        called="make ui",
        grace=GRACE,
        greeting=(
            f"Dagster: http://127.0.0.1:{port}   reports: http://127.0.0.1:{reports}   Ctrl-C "
            "ends both."
        ),
    )


if __name__ == "__main__":
    sys.exit(serve({}))
