"""A whole day whose service sent a response too many: held back with the number of answers, then
asked again.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from jobs.process.publish_decision import publish_or_hold_back
from jobs.run.day import run_day
from jobs.tables.leases.day_leases import leased
from tests.support.disorderly_service import DisorderlyService
from tests.support.places import everywhere, place_of
from tidegate import Enrichment, HttpLookup, Input, Ledger, Output, Service

pytestmark = pytest.mark.spark
DAY, ROWS = "2024-05-01", 120


def value(path, body):
    return {"x": int(path.rsplit("/", 1)[1])}


@pytest.fixture
def service():
    with DisorderlyService(
        value, fault=lambda number: "a second one" if number == 5 else None
    ) as service:
        yield service


@pytest.fixture
def shop(tmp_path, monkeypatch, service, request):
    monkeypatch.chdir(tmp_path)
    place = place_of(request, "data", in_spark=True)
    folder = Path(f"data/raw/date={DAY}")
    folder.mkdir(parents=True)
    for part in range(2):
        ids = range(part * ROWS // 2, (part + 1) * ROWS // 2)
        pq.write_table(pa.table({"k": pa.array(ids, pa.int64())}), folder / f"part-{part}.parquet")
    asked = HttpLookup(
        name="stock", service=Service(name="shop", url=service.url, max_concurrency=4),
        request="GET /v/{k}", keys={"k": "k"}, returns="x BIGINT", timeout=20.0,
    )  # fmt: skip
    return Enrichment(
        name="stocked", input=Input(path="data/raw", row_id=["k"]),
        output=Output(path=f"{place}/published/stocked"), lookups=[asked], mode="ordered",
        ledger=Ledger(f"{place}/ledger"),
    )  # fmt: skip


def night(enrichment, run_id):
    with leased(enrichment.output.path, DAY, run_id) as lease:
        record = run_day(enrichment, DAY, run_id, checks="data_quality.day:check")
        return publish_or_hold_back(record, lambda _: None, lease)


@everywhere("shop", on_store=pytest.mark.proof)
def test_a_day_with_answers_in_doubt_is_held_back_and_the_next_run_calls_again(
    spark, shop, service
):
    record = night(shop, "first")
    in_doubt = record.figures.lookups[0].requests.in_doubt
    assert record.state == "held back"
    assert in_doubt > 0
    assert record.reason.startswith(f"stock__one_answer_per_request: {in_doubt:,} of ")
    assert "answers of shop are in doubt" in record.reason
    asked_before = len(service.log)
    service.fault = lambda number: None
    record = night(shop, "second")
    assert 0 < len(service.log) - asked_before <= in_doubt
    assert (record.state, record.reason) == ("published", "")
    rows = DeltaTable(shop.output.path).to_pyarrow_table().to_pylist()
    assert sorted(row["k"] for row in rows) == list(range(ROWS))
    assert all(row["x"] == row["k"] for row in rows)
