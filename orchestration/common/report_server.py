"""Serves reports and run logs to this machine's browser; an orchestrator links to them."""

import io
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from jobs.errors import DeclarationError

# makes the page of a path and a query; None for any other path
Pages = Callable[[str, Mapping[str, str]], tuple[HTTPStatus, str] | None]

# for python -m; made of __package__, as the package has another name in the wheel
PROGRAM = f"{__package__}.serve_reports"
REPORTS_PORT = "TIDEGATE_REPORTS_PORT"
REPORTS_URL = "TIDEGATE_REPORTS_URL"
OVER_ALL_TABLES = {"/reports/", "/reports/index.html"}
SERVED = ("reports", "runs")  # folders under data/; nothing else is shown
OF_THIS_MACHINE = {"127.0.0.1", "localhost", "::1"}
NOT_YET = "Not found: the first run that writes a day makes its report, and each run its log"
FOREIGN = (
    f"Host is not this machine; set {REPORTS_URL} to the address under which the reports are "
    "published"
)


def served(path: str) -> str:
    """Return the http address of a file under data/; browsers open no file:// link from a page."""
    base = os.environ.get(REPORTS_URL) or f"http://127.0.0.1:{os.environ.get(REPORTS_PORT, '3070')}"
    return f"{base.rstrip('/')}/{path}"


def report_url(enrichment: str, day: str = "") -> str:
    """Return the address of the report of a day; without a day that of all days."""
    return served(f"reports/{enrichment}/{day and f'{day}/'}index.html")


def log_url(enrichment: str, day: str, run_id: str) -> str:
    return served(f"runs/{enrichment}/{day}/{run_id}.log")


class ReportHandler(SimpleHTTPRequestHandler):
    """Serves files read-only, and made pages; text is displayed, not downloaded."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".log": "text/plain; charset=utf-8",
        ".json": "text/plain; charset=utf-8",
    }

    def __init__(self, *given: Any, pages: Pages, **named: Any) -> None:
        self._pages = pages
        super().__init__(*given, **named)

    def send_head(self) -> Any:
        if not self._is_addressed():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, FOREIGN)
            return None
        path, _, query = self.path.partition("?")
        page = self._pages(path, dict(parse_qsl(query)))
        if page is not None:
            return self._send_page(*page)
        if path in OVER_ALL_TABLES:
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", "../")  # relative, as a proxy may add to the path
            self.end_headers()
            return None
        refusal = self._refusal()
        if refusal is not None:
            self.send_error(HTTPStatus.NOT_FOUND, refusal)
            return None
        return super().send_head()

    def _refusal(self) -> str | None:
        """Return why the path is not served; None if it is."""
        try:
            root = Path(self.directory).resolve()
            wanted = Path(self.translate_path(self.path)).resolve()
            exists = wanted.exists()
        # not a file's name: a NUL in it, too long, a loop of links
        except (OSError, ValueError, RuntimeError):
            return "Not found"
        # each may be a link to another disk
        if not any(wanted.is_relative_to((root / folder).resolve()) for folder in SERVED):
            return "Only reports/ and runs/ are served"
        return None if exists else NOT_YET

    def _send_page(self, status: HTTPStatus, page: str) -> io.BytesIO:
        content = page.encode(errors="replace")  # a file's name need not be UTF-8
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return io.BytesIO(content)

    def _is_addressed(self) -> bool:
        """Return whether the request names this server. A page of another site that makes its name
        resolve to 127.0.0.1 could otherwise read the reports through the browser of this machine.
        """
        known = OF_THIS_MACHINE | {_host(os.environ.get(REPORTS_URL, ""))}
        return _host(f"//{self.headers.get('Host', '')}") in known - {""}

    def end_headers(self) -> None:
        # a day that runs again has a new report at the same address
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name is its parent's
        """Log nothing: the terminal belongs to the orchestrator."""


class ReportServer(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print no traceback for a browser that closed its connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _host(address: str) -> str:
    """Return the name in an address, without its port; empty without a name."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def server(data: Path, port: int, pages: Pages) -> ThreadingHTTPServer:
    """Return a server on loopback, bound but not yet serving.

    Args:
        data: The folder with the reports and logs.
        port: The port; 0 takes a free port.
        pages: Makes the pages that are no files.

    Raises:
        DeclarationError: The address under which the reports are published is none.
    """
    public = os.environ.get(REPORTS_URL, "")
    if public and not (_host(public) and public.startswith(("http://", "https://"))):
        raise DeclarationError(
            f"{REPORTS_URL} is {public!r}; write the whole address, as https://reports.example.com."
        )
    handler = partial(ReportHandler, directory=str(data), pages=pages)
    return ReportServer(("127.0.0.1", port), handler)
