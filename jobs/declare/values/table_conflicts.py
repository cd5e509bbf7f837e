"""Refuses conflicts of written tables. A table has one writer: no two may be equal or nested."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import combinations, product
from pathlib import Path, PurePath, PurePosixPath
from typing import NamedTuple, Protocol

from jobs.errors import DeclarationError
from jobs.storage.urls import beside, is_url, plain

AUDIT, LETTERS = "__audit", "__dead_letters"  # suffixes of the tables beside the published one
DROPPED = "__dropped"  # suffix of the table of rows that arrived after all their windows closed

PARQUET = "folders of Parquet"  # they show the published table


class TablePath(NamedTuple):
    """A folder and the name of its content for messages."""

    path: str
    what: str

    def holds(self, other: TablePath) -> bool:
        """Return whether the other folder is this folder or inside it, in any spelling."""
        return _spelled(other.path).is_relative_to(_spelled(self.path))


class Shown(Protocol):
    """Where else the published table is shown."""

    @property
    def iceberg(self) -> str: ...

    @property
    def parquet(self) -> str: ...


class Writer(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def output(self) -> Shown: ...

    def tables(self) -> Sequence[TablePath]:
        """Return the published table and all tables beside it."""


def tables_beside(
    path: str, *, summaries: Iterable[str], windows: Iterable[str]
) -> list[TablePath]:
    table = plain(path)
    return [
        TablePath(table, "table"),
        TablePath(f"{table}{AUDIT}", "audit table"),
        TablePath(f"{table}{LETTERS}", "dead letters"),
        *(TablePath(beside(table, name), f"summary {name}") for name in summaries),
        *(
            TablePath(beside(table, f"{name}{end}"), f"{prefix}window {name}")
            for name in windows
            for end, prefix in (("", ""), (DROPPED, "dropped rows of "))
        ),
    ]


def find_own_conflict(
    input_path: str, tables: Sequence[TablePath], *, parquet: str, ledger: str
) -> str:
    """Return a sentence why an enrichment cannot write a table or its ledger; empty if it can.

    Args:
        input_path: The input's path; empty for a table that a catalog places.
        tables: The tables that the enrichment writes.
        parquet: The folder that shows the published table; empty for no folder.
        ledger: The ledger's path; empty without a ledger.
    """
    read = TablePath(input_path, "input")
    folder = TablePath(parquet, PARQUET)
    for table in (*tables, *([read] if input_path else [])):
        if parquet and (table.holds(folder) or folder.holds(table)):
            return (
                f"output: parquet: {parquet} is {table.path} ({table.what}), inside or around it; "
                "name another folder."
            )
    answers = [TablePath(ledger, "ledger")] if ledger else []
    for table, kept in product(tables, (*([read] if input_path else []), *answers)):
        # Delta's vacuum removes files that are not in the table
        if table.holds(kept):
            return (
                f"output: {table.path} ({table.what}) holds the {kept.what} {kept.path}; move one "
                "(Output.path)."
            )
    for place in (*tables, *answers):
        if input_path and _is_in_a_day(place, read):
            field = "Ledger.path" if place.what == "ledger" else "Output.path"
            return (
                f"{field}: {place.path} ({place.what}) is in the folder of a day of the input "
                f"{read.path}, whose next run would refuse it; name another folder."
            )
    for one, other in combinations(tables, 2):
        if one.holds(other):
            kind = "window" if "window" in other.what else "summary"
            field = "windows" if kind == "window" else "summaries"
            return f"{field}: {other.path} would be {_both(one, other)}; rename the {kind}."
    return ""


def _is_in_a_day(place: TablePath, read: TablePath) -> bool:
    if not read.holds(place):
        return False
    below = _spelled(place.path).relative_to(_spelled(read.path))
    return any("=" in part for part in below.parts[:1])


def refuse_conflicts(found: Sequence[tuple[str, Writer]]) -> None:
    """Raise DeclarationError if an enrichment (`module:name`, itself) cannot run beside others."""
    for number, writer in enumerate(found):
        if message := find_conflict(writer, found[:number]):
            raise DeclarationError(message)


def find_conflict(new: tuple[str, Writer], others: Iterable[tuple[str, Writer]]) -> str:
    """Return a sentence why an enrichment cannot run beside others, each with its `module:name`;
    empty if it can.
    """
    reference, enrichment = new
    for other_reference, other in others:
        if enrichment.name == other.name:
            return f"{reference} and {other_reference} are both named {other.name!r}; rename one."
        if enrichment.output.iceberg and enrichment.output.iceberg == other.output.iceberg:
            both = enrichment.output.iceberg
            return (
                f"{reference} and {other_reference} both write {both}; name another "
                "(Output.iceberg)."
            )
        for own, its in product(_written(enrichment), _written(other)):
            if own.holds(its) and its.holds(own):
                both = "" if own.what == its.what == "table" else f", {_both(own, its)}"
                return (
                    f"{reference} and {other_reference} both write {own.path}{both}; move one "
                    "(Output.path)."
                )
            if own.holds(its) or its.holds(own):
                inside = "inside" if its.holds(own) else "around"
                return (
                    f"{reference} writes {own.path} ({own.what}) {inside} {its.path} ({its.what}) "
                    f"of {other_reference}; move one (Output.path)."
                )
    return ""


def _written(writer: Writer) -> list[TablePath]:
    return [
        *writer.tables(),
        *([TablePath(writer.output.parquet, PARQUET)] if writer.output.parquet else []),
    ]


def _spelled(path: str) -> PurePath:
    """Return a path without links, or a URL, comparable with others."""
    return PurePosixPath(path) if is_url(path) else Path(os.path.realpath(path))


def _both(one: TablePath, other: TablePath) -> str:
    return f"{one.what} and {other.what} at once"
