"""Runs killed -9 at every point of their vendor jobs: what was accepted is submitted once."""

import pytest

from jobs.run.engines.engine import ENGINE, SPARK
from tests.support.killed_job_run import POINTS

DAY = "2013-01-10"
TEXTS = [f"text {number}" for number in range(25)]
NEVER_KNOWN = {"intent written", "answer lost"}  # of a vendor without list and token
KILLED = -9


def run_killed_at(reviews, point, recovery, **declared):
    """The statuses of the runs: one is killed at this point, the others continue."""
    # a killed submission may still arrive 4 times so long afterwards
    reviews.declare(recovery, attempt_timeout=1, poll_every=0.5, **declared)
    reviews.write_input(DAY, TEXTS)
    if point not in NEVER_KNOWN | {"id stored"}:
        assert reviews.run(DAY) == 10
        reviews.vendor.jobs["job-1"].looks = 1 if point == "polling" else 0
    killed = reviews.run_killed(DAY, point)
    assert killed == KILLED, reviews.output
    assert reviews.run(DAY, "--wait-for-jobs", "60") == 0


@pytest.mark.proof
@pytest.mark.process
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_run_with_a_ledger_on_an_object_store_pays_no_job_twice(reviews, s3, point):
    reviews.ledger = f"{s3.bucket}/ledger"
    run_killed_at(reviews, point, "list")
    assert {status for status, _ in reviews.rows().values()} == {"ok"}
    assert set(reviews.vendor.submits.values()) == {1}
    assert reviews.bill == reviews.vendor.invoice


@pytest.mark.process
@pytest.mark.parametrize(
    ("point", "recovery"),
    [
        ("answer lost", "list"),
        *(
            pytest.param(point, recovery, marks=pytest.mark.proof)
            for point in POINTS
            for recovery in ("list", "token", "none")
        ),
    ],
)
def test_a_killed_run_pays_no_job_twice(reviews, point, recovery):
    run_killed_at(reviews, point, recovery)
    check_paid_once(reviews, point, recovery)


@pytest.mark.proof
@pytest.mark.process
@pytest.mark.spark
@pytest.mark.parametrize("recovery", ["list", "token", "none"])
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_run_on_spark_pays_no_job_twice(reviews, spark, monkeypatch, point, recovery):
    monkeypatch.setenv(ENGINE, SPARK)
    run_killed_at(reviews, point, recovery)
    check_paid_once(reviews, point, recovery)


def check_paid_once(reviews, point, recovery):
    rows = reviews.rows()
    submits = reviews.vendor.submits
    assert set(submits.values()) == {1}
    statuses = {status for status, _ in rows.values()}
    if recovery == "none" and point in NEVER_KNOWN:
        assert statuses == {"ok", "unknown"}  # nothing is sent again in silence
    else:
        assert statuses == {"ok"}
        assert submits.keys() == set(TEXTS)
        assert reviews.bill == reviews.vendor.invoice
