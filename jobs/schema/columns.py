"""The columns that a run writes, and the words that they contain: outcomes, sources, modes."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


# -- columns that a run adds to its input
# ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Column:
    """`{}` in its name and meaning is the name of a lookup."""

    name: str
    kind: str  # in Spark's DDL
    meaning: str
    nullable: bool = True

    def of(self, lookup: str) -> Column:
        return dataclasses.replace(
            self, name=self.name.format(lookup), meaning=self.meaning.format(lookup)
        )

    @property
    def ddl(self) -> str:
        return f"`{self.name}` {self.kind}{'' if self.nullable else ' NOT NULL'}"

    @property
    def arrow_type(self) -> Any:
        """The Arrow type."""
        import pyarrow as pa

        attempt = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("throttled", pa.bool_())])
        plain = {
            "INT": pa.int32(),
            "BIGINT": pa.int64(),
            "DOUBLE": pa.float64(),
            "BOOLEAN": pa.bool_(),
        }
        times = {"TIMESTAMP": pa.timestamp("us", "UTC"), _ATTEMPTS: pa.list_(attempt)}
        return ({"STRING": pa.string()} | plain | times)[self.kind]


# µs since the epoch, by one monotonic clock per partition, which is set to the epoch once at the
# partition's start. throttled: the service throttled the call (such as 429) or was down; such an
# attempt uses no retry.
_ATTEMPTS = "ARRAY<STRUCT<start: BIGINT, end: BIGINT, throttled: BOOLEAN>>"

ROW_TABLE = (  # once per row
    Column(
        "_partition", "INT", "Number of the Spark partition, which is one task.", nullable=False
    ),
    Column("_input_seq", "BIGINT", "Position in the partition's input, from 0.", nullable=False),
    Column("_output_seq", "BIGINT", "Position in the partition's output, from 0.", nullable=False),
    Column(
        "_segment",
        "BIGINT",
        "Watermarks that the partition saw before the row, at input.",
        nullable=False,
    ),
    Column(
        "_late",
        "BOOLEAN",
        "Event time at or before the last watermark emitted before it.",
        nullable=False,
    ),
    Column("_source_file", "STRING", "URI of the input file."),
    Column("_source_row", "BIGINT", "Row number in that file, from 0."),
)
AUDIT_TABLE = (  # once per lookup, in the run's files
    Column("_{}_status", "STRING", "One of OUTCOMES.", nullable=False),
    Column(
        "_{}_source",
        "STRING",
        "call, ledger or shared; null where nothing answered, but for a joined call.",
    ),
    Column("_{}_attempts", _ATTEMPTS, "Every attempt.", nullable=False),
    Column(
        "_{}_latency_ms",
        "DOUBLE",
        "First start to outcome, with the waits between attempts; null without one.",
    ),
    Column(
        "_{}_paused_ms",
        "DOUBLE",
        "The part of latency_ms in which the clock stood, its gate closed.",
    ),
    Column(
        "_{}_error",
        "STRING",
        "What happened, in one sentence, where the outcome is timeout, error or unknown.",
    ),
)
PUBLISHED_TABLE = (  # once per lookup, for consumers
    Column(
        "{}_status",
        "STRING",
        "How the row ended at {}: ok, miss, skipped, timeout, ...",
        nullable=False,
    ),
    Column("{}_answered_at", "TIMESTAMP", "When {} was answered; null unless it was."),
)
ROW_COLUMNS = tuple(column.name for column in ROW_TABLE)
PARTITION, INPUT_SEQ, OUTPUT_SEQ, SEGMENT, LATE, SOURCE_FILE, SOURCE_ROW = ROW_COLUMNS
SOURCE_IDENTITY = (SOURCE_FILE, SOURCE_ROW)


# each makes the name of a column of a lookup, such as _weather_status, from the lookup's
status, source, attempts, latency_ms, paused_ms, error = (
    column.name.format for column in AUDIT_TABLE
)
published_status, published_answered_at = (column.name.format for column in PUBLISHED_TABLE)


def audit_columns(lookup: str) -> tuple[str, ...]:
    return tuple(column.name.format(lookup) for column in AUDIT_TABLE)


def key(lookup: str) -> str:
    """Struct of the parts of the key, by name. Only in the run's files, because a key may be
    personal.
    """
    return f"_{lookup}_key"


def published_columns(lookup: str) -> tuple[Column, ...]:
    return tuple(column.of(lookup) for column in PUBLISHED_TABLE)


def timed_out_text(limit: float | None, attempts: int) -> str:
    """Return the beginning of the error of a row that timed out; `limit` is in s."""
    return f"no answer within {limit} s, " + (
        f"{attempts} attempts" if attempts else "waiting for an equal request"
    )


def arrow_schema(columns: StructType) -> pa.Schema:
    """Spark's columns as Arrow has them, times in UTC. Raises PySparkException for a type that
    Arrow lacks.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    # up to Spark 4.1 UTC is the only one
    has_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    zone: dict[str, Any] = {"timezone": "UTC"} if has_zone else {}
    return to_arrow_schema(columns, **zone)


def in_sql(name: str) -> str:
    """Return a column's name for SQL, in backticks if it has more than letters, digits and _."""
    return name if re.fullmatch(r"\w+", name) else f"`{name}`"


def nullable(columns: StructType) -> StructType:
    """Return the columns with each part nullable, as Spark reads them from files."""
    text = columns.json()
    for word in ("nullable", "containsNull", "valueContainsNull"):
        text = text.replace(f'"{word}":false', f'"{word}":true')
    return type(columns).fromJson(json.loads(text))


# -- columns of the tables beside the published one, besides a row's identity
# ------------------------------------------
RUN_ID = "run_id"  # string: the run that wrote the row
LETTER_COLUMNS = ("_lookup", "_key", "_status", "_error", "_attempts", "_at")  # of a dead letter

# -- columns of the tables of windows, next to keys and aggregates, and of the rows in no window
# ---------------------
WINDOW_START, WINDOW_END, WINDOW_ROWS = "window_start", "window_end", "window_rows"
# with panes="all": the number of the firing, from 0, and ON_TIME or FIRED_LATE
PANE, FIRED = "pane", "fired"
INPUT_DAY = "input_day"  # the day of the input that has the window's rows
# of a dropped row: the watermark at its arrival, and TOO_LATE or NO_EVENT_TIME
WATERMARK, REASON = "watermark", "reason"
WINDOW_COLUMNS = (WINDOW_START, WINDOW_END, WINDOW_ROWS, PANE, FIRED, INPUT_DAY)
DROPPED_COLUMNS = (WINDOW_START, WINDOW_END, WATERMARK, REASON, INPUT_DAY)
ON_TIME, FIRED_LATE = "on time", "late"
TOO_LATE, NO_EVENT_TIME = "late", "no event time"

# -- outcome of a row for a lookup, and the source of its answer
# -------------------------------------------------------
Outcome = Literal["ok", "miss", "skipped", "fallback", "timeout", "error", "unknown", "not_asked"]
OUTCOMES: tuple[Outcome, ...] = typing.get_args(Outcome)
Source = Literal["call", "ledger", "shared"]
# the sources that a row with the outcome may have; None: null
SOURCES: dict[Outcome, tuple[Source | None, ...]] = {
    "ok": ("call", "ledger", "shared"),
    "miss": ("call", "ledger", "shared"),
    "skipped": (None,),
    "fallback": ("call", "shared"),
    "timeout": (None, "shared"),  # shared: it had joined another row's call
    "error": (None, "ledger", "shared"),
    "unknown": (None,),
    "not_asked": (None,),
}
HAS_ANSWER: tuple[Outcome, ...] = ("ok", "fallback")  # the outcomes of rows that may have one
FAILED: tuple[Outcome, ...] = ("timeout", "error", "unknown")  # the outcomes with an error's text
NOT_REPEATED = "the call must not be made twice"  # in the text of every `unknown`
# begins the error of a row that is not called because Python cannot hold its key
UNREAD_KEY = r"^key .+ is (not UTF-8 text|outside the years 1 to 9999|not to be read): "
# in place of the outcome of a stored answer: none is stored; none is, but may have been
NONE, GONE = "none", "gone"
# boolean column of stored answers: whether the checked run stored the answer; null: not known
BY_RUN = "by_run"
BY_LEDGER = "by_ledger"  # boolean, by key and answer time: all rows got it from the ledger
Mode = Literal["unordered", "ordered", "key_ordered"]
Severity = Literal["error", "warn"]
WindowKind = Literal["tumbling", "sliding", "session"]
Panes = Literal["last", "all"]
