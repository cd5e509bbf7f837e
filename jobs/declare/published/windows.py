"""Windows over the enriched table, as in Flink, and the aggregates of each. Free of Spark."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from jobs.declare.values.type_checks import require_folder_name, require_types
from jobs.errors import DeclarationError
from jobs.schema.records import WindowFacts

MILLISECOND = dt.timedelta(milliseconds=1)


@dataclass(frozen=True)
class Tumbling:
    """Windows of the same size, side by side from the epoch on (UTC).

    Attributes:
        size: From the start of a window to its exclusive end; whole milliseconds.
    """

    size: dt.timedelta

    def __post_init__(self) -> None:
        require_types(self, "tumbling")
        _require_positive("tumbling: size", self.size)


@dataclass(frozen=True)
class Sliding:
    """Windows of the same size that start at equal distances, so that a row may be in several.

    Attributes:
        size: From the start of a window to its exclusive end; whole milliseconds.
        every: From a start to the next, at most the size.
    """

    size: dt.timedelta
    every: dt.timedelta

    def __post_init__(self) -> None:
        require_types(self, "sliding")
        _require_positive("sliding: size", self.size)
        _require_positive("sliding: every", self.every)
        if self.every > self.size:
            raise DeclarationError(
                f"sliding: every is {self.every} and size {self.size}; every must be at most the "
                "size, else rows between two windows would be in none."
            )


@dataclass(frozen=True)
class Session:
    """Windows that grow with each further row of a key within the gap, or exactly at its end.

    Attributes:
        gap: The time without a row after which a session ends; whole milliseconds.
    """

    gap: dt.timedelta

    def __post_init__(self) -> None:
        require_types(self, "session")
        _require_positive("session: gap", self.gap)


@dataclass(frozen=True)
class Window:
    """A table of windows over a day's enriched rows, made with the day and published after it.

    Attributes:
        name: Name of the table's folder, beside the published one, and of its asset.
        of: The windows: Tumbling, Sliding or Session.
        sql: Spark SQL aggregates over the published columns, each with its name, as in
            "count(*) AS n, max(price) AS top".
        key: Columns; each combination of their values has separate windows.
        allowed_lateness: How far the watermark may pass the end of a window that still takes rows;
            whole milliseconds.
        late: Where a row goes for which all windows are closed: the table `<name>__dropped`.
        panes: "last" has a row per window, from its last firing; "all" has a row per firing.
        description: Description of its asset.
    """

    name: str
    of: Tumbling | Sliding | Session = field(kw_only=True)
    sql: str = field(kw_only=True)
    key: Sequence[str] = field(default=(), kw_only=True)
    allowed_lateness: dt.timedelta = field(default=dt.timedelta(0), kw_only=True)
    late: Literal["side_table"] = field(default="side_table", kw_only=True)
    panes: Literal["last", "all"] = field(default="last", kw_only=True)
    description: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        where = f"window {self.name}"
        require_types(self, where, leave=["late"])
        require_folder_name("window", self.name)
        if not self.sql.strip():
            raise DeclarationError(
                f"{where}: sql is {self.sql!r}; it must be aggregates, such as 'count(*) AS n'."
            )
        if self.allowed_lateness < dt.timedelta(0) or self.allowed_lateness % MILLISECOND:
            raise DeclarationError(
                f"{where}: allowed_lateness is {self.allowed_lateness}; it must be 0 or more, in "
                "whole milliseconds."
            )
        if self.late != "side_table":
            raise DeclarationError(
                f"{where}: late is {self.late!r}; it must be 'side_table': no row is thrown away."
            )
        lower = [column.lower() for column in self.key]
        if twice := next((column for column in self.key if lower.count(column.lower()) > 1), None):
            raise DeclarationError(f"{where}: key has {twice!r} twice; name it once.")

    def facts(self) -> WindowFacts:
        """Return what it promises, as plain data for the run and the checks."""
        size, every = _extent(self.of)
        return WindowFacts(
            name=self.name,
            kind=type(self.of).__name__.lower(),  # type: ignore[arg-type]  # one of three
            size_ms=size // MILLISECOND,
            every_ms=every // MILLISECOND,
            lateness_ms=self.allowed_lateness // MILLISECOND,
            key=tuple(self.key),
            sql=self.sql,
            panes=self.panes,
        )


def _extent(of: Tumbling | Sliding | Session) -> tuple[dt.timedelta, dt.timedelta]:
    """Return the size, and the distance of two starts; a session grows by its gap from a row."""
    if isinstance(of, Session):
        return of.gap, dt.timedelta(0)
    return (of.size, of.every) if isinstance(of, Sliding) else (of.size, of.size)


def _require_positive(where: str, value: dt.timedelta) -> None:
    if value <= dt.timedelta(0) or value % MILLISECOND:
        raise DeclarationError(f"{where} is {value}; it must be above 0, in whole milliseconds.")
