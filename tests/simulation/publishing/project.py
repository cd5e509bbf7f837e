"""The project of a night of publishing: its enrichment, the input as it arrives, and the files that
runs write.
"""

import datetime as dt
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.schema import columns as schema
from jobs.schema.columns import OUTCOMES
from jobs.schema.records import DayFacts, DayMetrics, DayRecord, LookupMetrics, Verdict
from tidegate import Enrichment, HttpLookup, Input, Output, Service, Summary

NAME = "orders"
TABLE = f"data/published/{NAME}"
INPUT = f"data/raw/{NAME}"
PLAIN = "data/plain"
CHECKPOINT = f"{TABLE}/_stream"
QUERY = "6f1c5a0e-0000-4000-8000-000000000001"
FIRST_DAY = dt.date(2024, 5, 1)
LOOKUP = "price"
RED = Verdict("every_row_once", "failed", "error", "A row is missing.", 1, 1)
GREEN = Verdict("every_row_once", "passed", "error", "Each row is there once.")
BY_MARK = Summary(
    name="by_mark", sql=f"SELECT price AS mark, count(*) AS orders FROM {NAME} GROUP BY 1"
)
ATTEMPT = pa.list_(
    pa.struct([("start", pa.int64()), ("end", pa.int64()), ("throttled", pa.bool_())])
)


def day_of(number: int) -> str:
    return str(FIRST_DAY + dt.timedelta(days=number))


def declared(
    *, shows_folders: bool, makes_summaries: bool, has_new_column: bool = False
) -> Enrichment:
    return Enrichment(
        name=NAME,
        input=Input(path=INPUT, partition="date", row_id=["id"]),
        output=Output(path=TABLE, parquet=PLAIN) if shows_folders else Output(path=TABLE),
        lookups=[
            HttpLookup(
                name=LOOKUP,
                service=Service(name="pricer", url="http://192.0.2.1", max_concurrency=4),
                request="GET /price/{id}", keys={"id": "id"}, timeout=5.0,
                returns="price DOUBLE, tax DOUBLE" if has_new_column else "price DOUBLE",
            )
        ],
        summaries=[BY_MARK] if makes_summaries else [],
        ledger=None,
    )  # fmt: skip


class Row(NamedTuple):
    """A row of a run's files. mark: the number of the run that enriched it. source: the file of the
    input.
    """

    id: int
    mark: int
    is_letter: bool
    source: str


@dataclass
class Written:
    """A run as it was written. files: by path below the table, its rows. over: of a run of changed
    rows.
    """

    run_id: str
    day: str
    number: int
    files: dict[str, list[Row]] = field(default_factory=dict)
    is_red: bool = False
    has_new_column: bool = False

    @property
    def rows(self) -> list[Row]:
        return [row for rows in self.files.values() for row in rows]

    @property
    def letters(self) -> int:
        return sum(row.is_letter for row in self.rows)


class Inputs:
    """The files of the input, day by day, which arrive during the night. Each has rows that no
    other has.
    """

    def __init__(self) -> None:
        self.files: dict[str, list[int]] = {}  # by absolute path, ids
        self._rows = 0

    def arrive(self, day: str, rows: int) -> None:
        folder = Path(INPUT, f"date={day}")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"part-{len(self.files):03}.parquet"
        ids = [*range(self._rows, self._rows + rows)]
        self._rows += rows
        draft = path.with_name(f".{path.name}")
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), draft)
        draft.rename(path)
        self.files[str(path.resolve())] = ids

    def of_day(self, day: str) -> dict[str, list[int]]:
        return {path: ids for path, ids in self.files.items() if f"date={day}/" in path}


def rows_of(files: Mapping[str, Sequence[int]], number: int) -> list[Row]:
    """What a run of this number makes of these files of the input."""
    return [
        Row(row_id, number, (row_id * 7 + number) % 5 == 0, f"file://{path}")
        for path, ids in files.items()
        for row_id in ids
    ]


def folder_of_rows(written: Written) -> Path:
    return Path(TABLE, "runs", written.run_id, f"date={written.day}", written.run_id)


def write_files(written: Written, parts: Sequence[Sequence[Row]], *, folder: Path) -> None:
    """Write the rows as a run does, a file a part; one of them may be empty."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(parts):
        path = folder / f"part-{number:05}.parquet"
        with path.open("wb") as file:
            pq.write_table(_columns(rows, has_new_column=written.has_new_column), file)
        written.files[str(path.relative_to(TABLE))] = [*rows]


def _columns(rows: Sequence[Row], *, has_new_column: bool) -> pa.Table:
    count = len(rows)
    at = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    outcomes = pa.array(["error" if row.is_letter else "ok" for row in rows], pa.string())
    marks = pa.array([row.mark for row in rows], pa.float64())
    ids = pa.array([row.id for row in rows], pa.int64())
    columns = {
        "id": ids,
        "price": marks,
        **({"tax": marks} if has_new_column else {}),
        schema.published_status(LOOKUP): outcomes,
        schema.published_answered_at(LOOKUP): pa.array([at] * count, pa.timestamp("us", "UTC")),
        schema.PARTITION: pa.array([0] * count, pa.int32()),
        schema.INPUT_SEQ: pa.array(range(count), pa.int64()),
        schema.OUTPUT_SEQ: pa.array(range(count), pa.int64()),
        schema.SEGMENT: pa.array([0] * count, pa.int64()),
        schema.LATE: pa.array([False] * count, pa.bool_()),
        schema.SOURCE_FILE: pa.array([row.source for row in rows], pa.string()),
        schema.SOURCE_ROW: pa.array(range(count), pa.int64()),
        schema.status(LOOKUP): outcomes,
        schema.source(LOOKUP): pa.array(["call"] * count, pa.string()),
        schema.attempts(LOOKUP): pa.array(
            [[{"start": 1, "end": 2, "throttled": False}]] * count, ATTEMPT
        ),
        schema.latency_ms(LOOKUP): pa.array([1.5] * count, pa.float64()),
        schema.paused_ms(LOOKUP): pa.array([0.0] * count, pa.float64()),
        schema.error(LOOKUP): pa.array(
            ["refused" if row.is_letter else None for row in rows], pa.string()
        ),
        schema.key(LOOKUP): pa.array(
            [{"id": str(row.id)} for row in rows], pa.struct([("id", pa.string())])
        ),
    }
    return pa.table(columns)


def find_record(
    enrichment: Enrichment, written: Written, sources: Collection[str], now: dt.datetime
) -> DayRecord:
    """The record of a run whose files are written, judged."""
    at = now.isoformat(timespec="milliseconds")
    files = tuple(str(Path(TABLE, file).resolve()) for file in written.files)
    facts = DayFacts(
        declared=enrichment.facts(), day=written.day, run_id=written.run_id,
        input_files=tuple(sources), input_columns=("id",),
        folder=str(Path(TABLE, "runs", written.run_id).resolve()), files=files, shares=((4,),),
        started_at=at, finished_at=at,
    )  # fmt: skip
    return with_figures(
        DayRecord(facts, DayMetrics(0, 0, 0, ()), (RED if written.is_red else GREEN,)), written.rows
    )


def with_figures(record: DayRecord, rows: Sequence[Row]) -> DayRecord:
    """The record with the counts of these rows, which are those that its run enriched."""
    outcomes = dict.fromkeys(OUTCOMES, 0)
    for row in rows:
        outcomes["error" if row.is_letter else "ok"] += 1
    lookup = LookupMetrics(LOOKUP, outcomes, len(rows), 0, 1.0, 1.0, None, None)
    return replace(record, figures=DayMetrics(len(rows), len(rows), 0, (lookup,)))


def note_query() -> None:
    """What Spark notes of a query in the folder of its checkpoint, once."""
    _note("metadata", [json.dumps({"id": QUERY})])


def next_batch(files: Collection[str]) -> int | None:
    """The number of the batch that Spark does next, of what is new; None if nothing is. A batch
    that did not end comes again, with the same files.
    """
    begun, ended = _last_noted("offsets"), _last_noted("commits")
    if begun > ended:
        return begun
    known = {file for number in range(begun + 1) for file in _files_noted(number)}
    new = [file for file in files if file not in known]
    if not new:
        return None
    entries = [
        json.dumps({"path": f"file://{path}", "timestamp": 1, "batchId": begun + 1}) for path in new
    ]
    _note(f"sources/0/{begun + 1}", ["v1", *entries])
    _note(f"offsets/{begun + 1}", ["v1", "{}", json.dumps({"logOffset": begun + 1})])
    return begun + 1


def note_done(number: int) -> None:
    _note(f"commits/{number}", ["v1", "{}"])


def _files_noted(number: int) -> list[str]:
    lines = Path(CHECKPOINT, "sources", "0", str(number)).read_text().splitlines()[1:]
    return [json.loads(line)["path"].removeprefix("file://") for line in lines]


def _last_noted(folder: str) -> int:
    noted = Path(CHECKPOINT, folder)
    return max((int(path.name) for path in noted.iterdir()), default=-1) if noted.is_dir() else -1


def _note(name: str, lines: Sequence[str]) -> None:
    path = Path(CHECKPOINT, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
