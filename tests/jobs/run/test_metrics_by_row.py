"""The figures that Arrow counts on a day's files are those that one would count row by row."""

import datetime as dt
import math
import random
import statistics

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.run.metrics.run_metrics import count
from jobs.schema import columns as schema
from jobs.task.rows.outcome_columns import ATTEMPT
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output

STATUSES = ["ok", "miss", "skipped", "timeout", "error"]
SOURCES = {
    "ok": ["call", "ledger", "shared"],
    "miss": ["call", "ledger"],
    "timeout": [None],
    "error": ["call"],
}
EPOCH = 1_700_000_000_000_000  # µs


class NeverAsked:
    async def async_invoke(self, keys):
        raise NotImplementedError


def facts():
    lookup = AsyncFunctionLookup(
        name="f",
        function=NeverAsked,
        keys={"k": "k"},
        returns="x DOUBLE",
        timeout=1.0,
        max_concurrency=4,
    )
    return Enrichment(
        name="e", input=Input(path="in"), lookups=[lookup], output=Output(path="out")
    ).facts()


def drawn(rng):
    """A row as a task may write it."""
    status = rng.choice(STATUSES)
    source = rng.choice(SOURCES.get(status, [None]))
    called = source == "call" or status == "timeout"
    starts = [EPOCH + rng.randrange(10**6) for _ in range(rng.randint(1, 3) if called else 0)]
    attempts = [
        {"start": s, "end": s + rng.randrange(10**5), "throttled": rng.random() < 0.2}
        for s in starts
    ]
    return {
        schema.LATE: rng.random() < 0.1,
        "_f_status": status,
        "_f_source": source,
        "_f_attempts": attempts,
        "_f_latency_ms": rng.random() * 100 if called else None,
        "f_answered_at": EPOCH + rng.randrange(10**6) if status in ("ok", "miss") else None,
        "_f_key": {"k": rng.randrange(20)},
    }


def written(rows, folder):
    """In two files of small row groups."""
    kinds = {
        "_f_attempts": pa.list_(ATTEMPT), "f_answered_at": pa.timestamp("us", tz="UTC"),
        "_f_latency_ms": pa.float64(), "_f_source": pa.string(), "_f_status": pa.string(),
        schema.LATE: pa.bool_(), "_f_key": pa.struct({"k": "int64"}),
    }  # fmt: skip
    files = []
    for part in range(2):
        own = rows[part::2]
        table = pa.table(
            {name: pa.array([row[name] for row in own], kind) for name, kind in kinds.items()}
        )
        files.append(str(folder / f"{part}.parquet"))
        pq.write_table(table, files[-1], row_group_size=7)
    return files


@pytest.mark.parametrize("seed", range(5))
def test_figures_equal_the_counts_over_single_rows(tmp_path, monkeypatch, seed):
    # of a large day they are brought together many times
    monkeypatch.setattr("jobs.run.metrics.run_metrics.HASHES_AT_ONCE", 5)
    rng = random.Random(seed)
    rows = [drawn(rng) for _ in range(60)]
    day = count(written(rows, tmp_path), facts(), rows_in=60, job_s=1.0)
    (found,) = day.lookups
    attempts = [attempt for row in rows for attempt in row["_f_attempts"]]
    answered = [row for row in rows if row["_f_status"] in ("ok", "miss")]
    called = [row for row in rows if row["_f_attempts"]]
    latencies = sorted(row["_f_latency_ms"] for row in answered if row["_f_latency_ms"] is not None)
    assert (day.rows_out, day.rows_late) == (60, sum(row[schema.LATE] for row in rows))
    assert {status: found.outcomes[status] for status in STATUSES} == {
        status: sum(row["_f_status"] == status for row in rows) for status in STATUSES
    }
    assert (found.calls, found.rows_called) == (len(attempts), len(called))
    assert found.retried == len(attempts) - len(called)
    assert found.throttled == sum(attempt["throttled"] for attempt in attempts)
    assert found.keys_called == len({row["_f_key"]["k"] for row in called})
    assert found.from_ledger == sum(row["_f_source"] == "ledger" for row in rows)
    assert found.shared == sum(row["_f_source"] == "shared" for row in rows)
    assert found.answered == sum(row["_f_source"] == "call" for row in answered)
    span = max(attempt["end"] for attempt in attempts) - min(
        attempt["start"] for attempt in attempts
    )
    assert found.wall_s == span / 1e6
    assert found.limit_s == pytest.approx(
        sum(attempt["end"] - attempt["start"] for attempt in attempts) / 1e6 / 4
    )
    assert found.latency_p50_ms == statistics.median_low(latencies)
    assert found.latency_p99_ms == latencies[math.ceil(0.99 * len(latencies)) - 1]
    oldest = min(row["f_answered_at"] for row in answered) / 1e6
    assert found.oldest_answer_at == dt.datetime.fromtimestamp(oldest, dt.UTC).isoformat(
        timespec="seconds"
    )


def test_a_day_without_files_has_figures_of_zero():
    day = count([], facts(), rows_in=0, job_s=0.0)
    (found,) = day.lookups
    assert (day.rows_out, found.calls, found.wall_s) == (0, 0, 0)
    assert (found.latency_p50_ms, found.oldest_answer_at) == (None, None)
