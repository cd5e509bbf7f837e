"""Serves pages over tables and rows, the reports and the runs' logs, until SIGTERM or Ctrl-C.

`python -m orchestration.common.serve_reports`; TIDEGATE_REPORTS_PORT sets the port, else 3070.
"""

import os
import signal
import sys
from pathlib import Path

from jobs.errors import DeclarationError
from orchestration.common.report_server import REPORTS_PORT, server
from orchestration.common.serving import why_unusable
from orchestration.common.table_pages import TablePages

DATA = Path("data")


def main(package: str = "enrichments") -> int:
    """Serve a package's tables. Returns the exit status.

    Raises DeclarationError if the port cannot be used.
    """
    port = os.environ.get(REPORTS_PORT, "3070")
    if why := why_unusable(port, "tidegate reports"):
        raise DeclarationError(f"Port {port} {why}, or set {REPORTS_PORT} to a free port.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    pages = TablePages(package, DATA / "reports")
    with server(DATA, int(port), pages.make) as serving:
        print(f"reports on http://127.0.0.1:{serving.server_port}", flush=True)
        serving.serve_forever()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DeclarationError as error:
        sys.exit(str(error))
