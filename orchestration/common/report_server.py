"""Serves reports and run logs to this machine's browser, so that the orchestrator can link to them.

python -m orchestration.common.report_server        # http://127.0.0.1:3070, or
TIDEGATE_REPORTS_PORT
"""

import os
import signal
import sys
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

REPORTS_PORT = "TIDEGATE_REPORTS_PORT"
REPORTS_URL = "TIDEGATE_REPORTS_URL"
SERVED = ("reports", "runs")  # folders under data/; nothing else is shown
OF_THIS_MACHINE = {"127.0.0.1", "localhost", "::1"}
NOT_YET = "Not found: the first run that writes a day makes its report, and each run its log"
FOREIGN = (
    f"Host is not this machine; set {REPORTS_URL} to the address under which the reports are "
    "published"
)


def served(path: str) -> str:
    """Returns the http address of a file under data/; browsers open no file:// link from a page."""
    base = os.environ.get(REPORTS_URL) or f"http://127.0.0.1:{os.environ.get(REPORTS_PORT, '3070')}"
    return f"{base.rstrip('/')}/{path}"


class ReportHandler(SimpleHTTPRequestHandler):
    """Serves files read-only; text is displayed, not downloaded."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".log": "text/plain; charset=utf-8",
        ".json": "text/plain; charset=utf-8",
    }

    def send_head(self) -> Any:
        if not self._is_addressed():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, FOREIGN)
            return None
        if self.path == "/":
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", "/reports/")
            self.end_headers()
            return None
        try:
            root, wanted = (
                Path(self.directory).resolve(),
                Path(self.translate_path(self.path)).resolve(),
            )
            exists = wanted.exists()
        # not a file's name: a NUL in it, too long, a loop of links
        except (OSError, ValueError, RuntimeError):
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        if not any(wanted.is_relative_to(root / folder) for folder in SERVED):
            self.send_error(HTTPStatus.NOT_FOUND, "Only reports/ and runs/ are served")
            return None
        if not exists:
            self.send_error(HTTPStatus.NOT_FOUND, NOT_YET)
            return None
        return super().send_head()

    def _is_addressed(self) -> bool:
        """Returns whether the request names this server. A page of another site that makes its name
        resolve to 127.0.0.1 could otherwise read the reports through the browser of this machine.
        """
        known = OF_THIS_MACHINE | {_host(os.environ.get(REPORTS_URL, ""))}
        return _host(f"//{self.headers.get('Host', '')}") in known - {""}

    def end_headers(self) -> None:
        # a day that runs again has a new report at the same address
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name is its parent's
        """Logs nothing: the terminal belongs to the orchestrator."""


class ReportServer(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints no traceback for a browser that closed its connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _host(address: str) -> str:
    """Returns the name in an address, without its port; empty without a name."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def server(data: Path, port: int) -> ThreadingHTTPServer:
    """Returns a server on loopback, bound but not yet serving; port 0 takes a free port."""
    return ReportServer(("127.0.0.1", port), partial(ReportHandler, directory=str(data)))


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with server(Path("data"), int(os.environ.get(REPORTS_PORT, "3070"))) as serving:
        print(f"reports on http://127.0.0.1:{serving.server_port}", flush=True)
        serving.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
