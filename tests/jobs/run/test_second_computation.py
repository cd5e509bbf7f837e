"""An enriched DataFrame that Spark computes a second time, in a real local Spark: refused, unless it costs nothing."""

import pytest

from jobs.errors import DeclarationError
from jobs.run.enrich import enrich
from tidegate import Enrichment, HttpLookup, Input, Output, Retry, Service

pytestmark = pytest.mark.spark

WRITE_FIRST = "write it first, then read what was written"


@pytest.fixture
def enriched(spark, service):
    """A function that enriches `rows` rows in two partitions, anew at each call."""
    weather = HttpLookup(
        name="weather", service=Service(name="weather", url=service.url, max_concurrency=8), request="GET /{k}",
        keys={"k": "id"}, returns="temp_c DOUBLE", timeout=60.0,
    )  # fmt: skip
    things = Enrichment(
        name="things", input=Input(path="in", row_id=["id"]), lookups=[weather], output=Output(path="out"), ledger=None
    )
    return lambda rows=20: enrich(spark.range(0, rows, 1, 2), things)


def test_a_count_and_then_a_write_calls_the_service_once_and_says_what_to_do(enriched, service, tmp_path):
    frame = enriched()
    assert frame.count() == 20
    with pytest.raises(Exception, match=WRITE_FIRST):
        frame.write.parquet(str(tmp_path / "out"))
    assert len(service.log) == 20


@pytest.mark.parametrize(
    "use",
    [lambda frame: frame.orderBy("temp_c"), lambda frame: frame.filter("id < 5").union(frame.filter("id >= 5"))],
    ids=["sort", "union with itself"],
)
def test_a_plan_that_would_compute_it_twice_is_refused_before_a_second_call(enriched, service, use):
    with pytest.raises(Exception, match=WRITE_FIRST):
        use(enriched()).collect()
    assert len(set(service.log)) == len(service.log) <= 20


def test_jobs_that_each_compute_other_partitions_are_let_through(enriched, service):
    assert len(enriched().take(15)) == 15  # the first partition, and then the second in a job of its own
    assert len(enriched().coalesce(1).collect()) == 20  # both in one task
    other = enriched()
    assert other.unionByName(enriched()).count() == 40


def test_enriched_anew_it_is_computed_anew(enriched, service):
    assert enriched().count() == enriched().count() == 20
    assert len(service.log) == 40


def test_a_session_that_may_run_a_task_twice_at_once_is_refused_where_calls_must_not_be_made_twice(spark):
    order = HttpLookup(
        name="order", service=Service(name="shop", url="http://127.0.0.1:1", max_concurrency=8), request="GET /{k}",
        keys={"k": "id"}, returns="number INT", timeout=60.0, retry=Retry(retries=0), idempotent=False,
    )  # fmt: skip
    orders = Enrichment(name="orders", input=Input(path="in", row_id=["id"]), lookups=[order], output=Output(path="o"))
    spark.sparkContext._conf.set("spark.speculation", "true")  # what a session made with it has; ours is made already
    try:
        with pytest.raises(DeclarationError, match=r"lookup order: idempotent=False, and spark\.speculation is on"):
            enrich(spark.range(2), orders)
    finally:
        spark.sparkContext._conf.set("spark.speculation", "false")
    enrich(spark.range(2), orders)
