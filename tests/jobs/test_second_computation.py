"""An enriched DataFrame that Spark computes a second time, in a real local Spark: refused, unless it costs nothing."""

import contextlib
import json
import socket

import pytest

from jobs.bridge.desk import Desk
from jobs.bridge.stopping import report_to_desk
from jobs.enrich import enrich
from jobs.errors import ComputedBefore, DeclarationError
from tidegate import Enrichment, HttpLookup, Input, Output, Retry, Service

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


@pytest.mark.spark
def test_a_count_and_then_a_write_calls_the_service_once_and_says_what_to_do(enriched, service, tmp_path):
    frame = enriched()
    assert frame.count() == 20
    with pytest.raises(Exception, match=WRITE_FIRST):
        frame.write.parquet(str(tmp_path / "out"))
    assert len(service.log) == 20


@pytest.mark.spark
@pytest.mark.parametrize(
    "use",
    [lambda frame: frame.orderBy("temp_c"), lambda frame: frame.filter("id < 5").union(frame.filter("id >= 5"))],
    ids=["sort", "union with itself"],
)
def test_a_plan_that_would_compute_it_twice_is_refused_before_a_second_call(enriched, service, use):
    with pytest.raises(Exception, match=WRITE_FIRST):
        use(enriched()).collect()
    assert len(set(service.log)) == len(service.log) <= 20


@pytest.mark.spark
def test_jobs_that_each_compute_other_partitions_are_let_through(enriched, service):
    assert len(enriched().take(15)) == 15  # the first partition, and then the second in a job of its own
    assert len(enriched().coalesce(1).collect()) == 20  # both in one task
    other = enriched()
    assert other.unionByName(enriched()).count() == 40


@pytest.mark.spark
def test_enriched_anew_it_is_computed_anew(enriched, service):
    assert enriched().count() == enriched().count() == 20
    assert len(service.log) == 40


@pytest.mark.spark
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


# -- the desk alone ----------------------------------------------------------------------------------------------------
@pytest.fixture
def active():
    return {7}


@pytest.fixture
def desk(active):
    return Desk("127.0.0.1", "127.0.0.1", lambda stage: stage in active)


def test_a_task_that_spark_tries_again_is_let_through_and_another_stage_is_not(desk):
    address = desk.register(once=True)
    report_to_desk(address, partition=3, stage=7, task=3).close()
    report_to_desk(address, partition=3, stage=7, task=3).close()
    with pytest.raises(ComputedBefore, match=WRITE_FIRST):
        report_to_desk(address, partition=3, stage=8, task=3)
    report_to_desk(address, partition=4, stage=8, task=4).close()


def test_where_every_answer_is_stored_nothing_is_refused(desk):
    address = desk.register(once=False)
    for stage in (7, 8):
        report_to_desk(address, partition=0, stage=stage, task=0).close()


def test_the_tasks_of_a_stage_that_ended_are_told_to_stop_and_others_are_not(desk, active):
    active.add(8)
    address = desk.register(once=True)
    ends, stays = (report_to_desk(address, partition=stage, stage=stage, task=0) for stage in (7, 8))
    not_seen_yet = report_to_desk(address, partition=9, stage=9, task=0)
    ends.settimeout(0.6)
    with pytest.raises(TimeoutError):  # time enough for the desk to see them at work
        ends.recv(10)
    active.remove(7)
    ends.settimeout(30)
    assert ends.recv(10) == b"go\nstop\n"[3:]
    stays.settimeout(0.6)
    with pytest.raises(TimeoutError):
        stays.recv(10)
    not_seen_yet.settimeout(0.1)
    with pytest.raises(TimeoutError):
        not_seen_yet.recv(10)
    for connection in (ends, stays, not_seen_yet):
        connection.close()


def test_what_a_stranger_says_is_not_answered_and_disturbs_nobody(desk):
    address = desk.register(once=True)
    for said in (b"GET / HTTP/1.1\r\n\r\n", json.dumps({"frame": "guessed", "stage": 1}).encode() + b"\n", b"x" * 5000):
        with socket.create_connection((address.host, address.port), 30) as stranger:
            stranger.sendall(said)
            stranger.settimeout(30)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(10) == b""
    report_to_desk(address, partition=0, stage=7, task=0).close()


def test_a_desk_that_cannot_be_reached_stops_nobody(desk, caplog):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = desk.register(once=True)
        gone = type(address)(address.host, nobody.getsockname()[1], address.frame, address.once)
        assert report_to_desk(gone, partition=0, stage=1, task=0) is None
    assert "is not reached" in caplog.text
