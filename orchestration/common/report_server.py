"""Serves reports and logs of runs to the browser of this machine, so that the orchestrator can link to them.

python -m orchestration.common.report_server        # http://127.0.0.1:3070, or TIDEGATE_REPORTS_PORT
"""

import os
import signal
import sys
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REPORTS_PORT = "TIDEGATE_REPORTS_PORT"
REPORTS_URL = "TIDEGATE_REPORTS_URL"
SERVED = ("reports", "runs")  # folders under data/; nothing else is shown
NOT_YET = "Not found: the first run that writes a day makes its report, and each run its log"


def served(path: str) -> str:
    """The http address of a file under data/; browsers open no file:// link from a page."""
    base = os.environ.get(REPORTS_URL) or f"http://127.0.0.1:{os.environ.get(REPORTS_PORT, '3070')}"
    return f"{base.rstrip('/')}/{path}"


class ReportHandler(SimpleHTTPRequestHandler):
    """Serves files read-only; text is displayed, not downloaded."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".log": "text/plain; charset=utf-8",
        ".json": "text/plain; charset=utf-8",
    }

    def send_head(self) -> Any:
        if self.path == "/":
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", "/reports/")
            self.end_headers()
            return None
        root, wanted = Path(self.directory).resolve(), Path(self.translate_path(self.path)).resolve()
        if not any(wanted.is_relative_to(root / folder) for folder in SERVED):
            self.send_error(HTTPStatus.NOT_FOUND, "Only reports/ and runs/ are served")
            return None
        if not wanted.exists():
            self.send_error(HTTPStatus.NOT_FOUND, NOT_YET)
            return None
        return super().send_head()

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")  # a day run again has a new report under its old address
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name is its parent's
        """Log nothing: the terminal belongs to the orchestrator."""


def server(data: Path, port: int) -> ThreadingHTTPServer:
    """A server on loopback, bound and not yet serving; port 0 takes a free one."""
    return ThreadingHTTPServer(("127.0.0.1", port), partial(ReportHandler, directory=str(data)))


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with server(Path("data"), int(os.environ.get(REPORTS_PORT, "3070"))) as serving:
        print(f"reports on http://127.0.0.1:{serving.server_port}", flush=True)
        serving.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
