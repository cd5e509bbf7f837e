import asyncio
import datetime as dt
import random
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from honest_day import DAY, input_table

from data_quality.day import check
from jobs.declare.services import Retry
from jobs.run.enrich import write_out
from jobs.run.metrics.run_metrics import count
from jobs.run.plan.planner import plan_tasks
from jobs.schema.records import DayFacts
from tidegate import AsyncFunctionLookup, Enrichment, EventTime, Input, Output, Tolerance

pytestmark = pytest.mark.spark
ROWS = 300


def weather(seed: int):
    """Made here, so that it travels to the executors by value: misses, errors and hangs beside
    answers.
    """

    class Weather:
        def __init__(self):
            self.dice = random.Random(seed)

        async def async_invoke(self, value):
            happens = self.dice.random()
            await asyncio.sleep(30 if happens < 0.02 else self.dice.uniform(0.001, 0.03))
            if happens < 0.12:
                raise ConnectionError("reset by peer")
            return [] if happens < 0.2 else [{"temp_c": self.dice.uniform(-20, 35)}]

    return Weather


@pytest.mark.proof
@pytest.mark.parametrize("mode", ["ordered", "unordered", "key_ordered"])
def test_a_run_in_spark_with_faults_at_the_service_raises_no_alarm(
    spark, tmp_path, monkeypatch, mode
):
    monkeypatch.chdir(tmp_path)
    raw = tmp_path / "raw" / f"date={DAY}"
    raw.mkdir(parents=True)
    for number in range(2):
        table, _ = input_table(random.Random(number), number, ROWS)
        pq.write_table(table, raw / f"part-{number}.parquet")
    enrichment = Enrichment(
        name="flights_enriched",
        input=Input(path="raw", row_id=["flight"]),
        lookups=[
            AsyncFunctionLookup(
                name="weather",
                keys={"carrier": "carrier"},
                returns="temp_c DOUBLE",
                timeout=0.5,
                max_concurrency=8,
                cache=None,  # a call for every row
                function=weather(1),
                retry=Retry(retries=2, initial_delay=0.01, jitter=0.5),
            )
        ],
        output=Output(path="published"),
        mode=mode,
        event_time=EventTime("departure", max_out_of_orderness=dt.timedelta(seconds=60)),
        tolerance=Tolerance(timeout=0.2, error=0.2),
        ledger=None,
        **({"key": ["carrier"]} if mode == "key_ordered" else {}),
    )
    inputs = sorted(str(path) for path in raw.glob("*.parquet"))
    rows, plan = plan_tasks(spark.read.parquet(*inputs), enrichment)
    folder = tmp_path / "published" / "runs" / "r1"
    written = write_out(rows, plan, str(folder))  # as a day's run writes
    now = dt.datetime.now(dt.UTC).isoformat()
    facts = DayFacts(
        # two busy cores: the clock is not on trial here
        declared=replace(enrichment.facts(), time_slack=5.0),
        day=DAY,
        run_id="r1",
        input_files=tuple(inputs),
        input_columns=tuple(table.column_names),
        folder=str(folder),
        files=written.files,
        shares=plan.shares,
        shares_given=written.shares_given,
        started_at=now,
        finished_at=now,
    )
    figures = count(facts.files, facts.declared, rows_in=2 * ROWS, job_s=1.0)
    found = {verdict.check: verdict for verdict in check(spark, facts, figures).verdicts}
    assert {
        name: verdict.sentence for name, verdict in found.items() if verdict.status != "passed"
    } == {"input_day_complete": "not run: no earlier day of the same weekday to compare with"}
    outcomes = figures.lookups[0].outcomes
    assert outcomes["ok"] > 0 < outcomes["miss"]
    assert outcomes["timeout"] > 0
