"""The pages of the reports' server that are no files: tables, services, a row, dead letters.

They make no call and change nothing. Personal values are masked, as by the commands.
"""

import datetime as dt
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from data_quality.report.pages import render_page
from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.discovery import discover_named
from jobs.errors import DeclarationError, TidegateError
from orchestration.common.declarations import Declarations
from orchestration.common.row_pages import describe_letters, describe_row
from orchestration.common.service_status import declared, read_services
from orchestration.common.start_page import DAYS, describe
from orchestration.common.table_status import Status, read_tables

Describe = Callable[[Enrichment, Mapping[str, str]], dict[str, Any]]
OF_A_TABLE: dict[str, Describe] = {"row": describe_row, "letters": describe_letters}


class TablePages:
    """Makes pages from a package's declarations, and the records and tables of its runs.

    Several threads may ask; declarations are read by one at a time.
    """

    def __init__(self, package: str, reports: Path) -> None:
        self._declarations = Declarations(package)
        self._reports = reports
        self._lock = threading.Lock()

    def make(self, path: str, query: Mapping[str, str]) -> tuple[HTTPStatus, str] | None:
        """Return the page of a path, read anew; None if it is none of these pages."""
        _, kind, *names = path.split("/")
        if path == "/":
            return HTTPStatus.OK, self._all_tables()
        if kind == "service" and len(names) == 1:
            return self._service(unquote(names[0]))
        if kind not in OF_A_TABLE or len(names) != 1:
            return None
        values: dict[str, Any] = {"root": "../reports/", "name": names[0], "error": ""}
        try:
            values |= OF_A_TABLE[kind](self._named(names[0]), query)
        except TidegateError as error:
            page = render_page("problem.html", values | {"error": str(error)})
            return HTTPStatus.NOT_FOUND, page
        return HTTPStatus.OK, render_page(f"{kind}.html", values)

    def _all_tables(self) -> str:
        now, error = dt.datetime.now(dt.UTC), ""
        with self._lock:
            self._declarations.refresh()
            try:
                status = read_tables(self._declarations.package, DAYS, now)
                enrichments = declared(self._declarations.package)
            except DeclarationError as wrong:
                status, enrichments, error = Status(now.isoformat(), ()), [], str(wrong)
        services = {lookup.service_name for one in enrichments for lookup in one.lookups}
        values = describe(status, now, self._reports, error, sorted(services))
        return render_page("tables.html", values)

    def _service(self, name: str) -> tuple[HTTPStatus, str]:
        now = dt.datetime.now(dt.UTC)
        values: dict[str, Any] = {"root": "../reports/", "name": name, "now": now}
        with self._lock:
            self._declarations.refresh()
            try:
                enrichments = declared(self._declarations.package)
            except DeclarationError:
                enrichments = []
        found = read_services(enrichments, now)
        for service in found.services:
            if service.service == name:
                values |= {"service": service, "error": found.error}
                return HTTPStatus.OK, render_page("service.html", values)
        error = f"no enrichment here asks a service named {name!r}."
        return HTTPStatus.NOT_FOUND, render_page("problem.html", values | {"error": error})

    def _named(self, name: str) -> Enrichment:
        """Return the enrichment of this name. Raises DeclarationError; imports no other module."""
        with self._lock:
            self._declarations.refresh()
            if not name.isidentifier():
                raise DeclarationError(f"no enrichment is named {name!r}.")
            return discover_named(self._declarations.package, name).enrichment
