"""What the record of a run says of throttling, of the ledger and of money, against a real service
and a real ledger.
"""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.run.day import run_day
from tidegate import Enrichment, HttpLookup, Input, Output, Price, Service

pytestmark = pytest.mark.spark
DAY = "2024-05-01"
ROWS, KEYS = 12, 6


@pytest.fixture
def paid(spark, tmp_path, monkeypatch, service):
    """An enrichment that asks a service which bills half a dollar for each attempt; each key stands
    in two rows.
    """
    monkeypatch.chdir(tmp_path)
    folder = Path(f"data/raw/date={DAY}")
    folder.mkdir(parents=True)
    rows = {
        "id": pa.array(range(ROWS), pa.int64()),
        "k": pa.array([n % KEYS for n in range(ROWS)], pa.int64()),
    }
    pq.write_table(pa.table(rows), folder / "part-0.parquet")
    geo = Service(name="geo", url=service.url, max_concurrency=1, prices=[Price("0.50 USD")])
    answer = HttpLookup(
        name="answer",
        service=geo,
        request="GET /{k}",
        keys={"k": "k"},
        returns="temp_c DOUBLE",
        timeout=20.0,
    )
    return Enrichment(
        name="paid",
        input=Input(path="data/raw", row_id=["id"]),
        lookups=[answer],
        output=Output(path="data/paid"),
    )


def test_the_record_counts_throttling_saved_calls_and_the_age_of_answers(paid, service):
    weather, reported = service.answer, []

    async def not_at_first(request):
        reported.append(request.path)
        return (
            web.Response(status=429, headers={"Retry-After": "0.01"})
            if len(reported) == 1
            else await weather(request)
        )

    service.answer = not_at_first
    first = run_day(paid, DAY, "r1")
    (asked,) = first.figures.lookups
    assert (asked.throttled, asked.calls, len(service.log)) == (1, KEYS + 1, KEYS + 1)
    assert (asked.billed.cost, asked.billed.saved, asked.from_ledger) == ("3.50", "0", 0)

    needs_retry = run_day(paid, DAY, "r2")
    (known,) = needs_retry.figures.lookups
    assert (known.calls, known.from_ledger, known.throttled) == (0, ROWS, 0)
    # each key once, though it stands in two rows
    assert (known.billed.cost, known.billed.saved) == ("0.00", "3.00")
    answered = dt.datetime.fromisoformat(known.oldest_answer_at)
    started, finished = (
        dt.datetime.fromisoformat(time)
        for time in (first.facts.started_at, first.facts.finished_at)
    )
    assert started.replace(microsecond=0) <= answered <= finished
