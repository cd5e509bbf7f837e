"""The pages of the reports' server that are no files: tables, services, a row, dead letters.

They make no call and change nothing. Personal values are masked, as by the commands.
"""

import datetime as dt
import shlex
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

from data_quality.report.pages import render_page
from jobs.commands.explaining.explain import explain
from jobs.commands.replaying.dead_letters import LetterGroup, find_dead_letters, group_letters
from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.discovery import discover_named
from jobs.declare.values.calendar import require_day
from jobs.errors import DeclarationError, TidegateError
from jobs.schema import columns as schema
from jobs.schema.personal import HIDDEN
from orchestration.common.declarations import Declarations
from orchestration.common.service_status import declared, read_services
from orchestration.common.start_page import DAYS, describe
from orchestration.common.table_status import Status, read_tables

DAY = "_day"  # in a query, beside the values of columns; no column of a table has this name


def describe_row(enrichment: Enrichment, query: Mapping[str, str]) -> dict[str, Any]:
    """Return where the cells of a published row come from; without values only the form.

    The query has values of columns of the row, and perhaps its day.

    Raises:
        TidegateError: As `explain` raises it.
    """
    wanted = {name: value for name, value in query.items() if name != DAY}
    day = query.get(DAY) or None
    every = enrichment.input.every
    found = (
        explain(enrichment, wanted, day=day and require_day(day, "day", every)) if wanted else None
    )
    asked = [*enrichment.input.row_id] or [*wanted] or [schema.SOURCE_ROW]
    return {
        "fields": [(name, query.get(name, "")) for name in asked],
        "day": day or (found.day if found else ""),
        "found": found,
        "link": _link,
    }


def _link(row: Mapping[str, Any], day: str) -> str:
    """Return the query of a row's page; empty if a value of the row is hidden or null."""
    if not row or any(value is None or value == HIDDEN for value in row.values()):
        return ""
    return urlencode({**row, DAY: day})


def describe_letters(enrichment: Enrichment, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the dead letters of a table by reason.

    The query has `day` and `where`, as the options of `dead-letters`.

    Raises:
        TidegateError: As `find_dead_letters` and `group_letters` raise it.
    """
    day, where = query.get("day") or None, query.get("where", "")
    day = day and require_day(day, "day", enrichment.input.every)
    found = find_dead_letters(enrichment, day, where)
    return {
        "day": day or "",
        "where": where,
        "count": sum(len(letters.rows) for letters in found),
        "removed": [(letters.day, letters.removed) for letters in found if letters.removed],
        "groups": [_group(enrichment, group) for group in group_letters(enrichment, found)],
    }


def _group(enrichment: Enrichment, group: LetterGroup) -> dict[str, Any]:
    beside = {*schema.LETTER_COLUMNS, schema.RUN_ID, enrichment.input.partition}
    row = {name: value for name, value in group.sample.items() if name not in beside}
    return {
        "group": group,
        "row": row,
        "key": group.sample.get("_key"),
        "error": group.sample.get("_error"),
        # without a reason it would be refused
        "replay": f"tidegate replay {enrichment.name} --where {shlex.quote(group.reason)}"
        if group.reason and enrichment.facts().can_be_replayed
        else "",
        "link": "" if group.held_back else _link(row, group.days[-1]),
    }


Describe = Callable[[Enrichment, Mapping[str, str]], dict[str, Any]]
OF_A_TABLE: dict[str, Describe] = {"row": describe_row, "letters": describe_letters}


class TablePages:
    """Makes pages from a package's declarations, and the records and tables of its runs.

    Several threads may ask; a lock has them read declarations one after the other.
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
        services = {
            lookup.service_name for enrichment in enrichments for lookup in enrichment.lookups
        }
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
