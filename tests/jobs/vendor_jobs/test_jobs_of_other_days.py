"""Any run looks at any job of its lookup; a day tells and fails by the jobs with its keys only."""

import pyarrow as pa
import pytest
from aiohttp import web

from jobs.errors import DeclarationError, TidegateError
from jobs.ledger.scan import read_parts
from tests.support.job_steps import DAY, Steps

NEXT = "2013-01-11"
HOUR = 3600.0
TEXTS = ["text 1", "text 2", "text 3"]


@pytest.fixture
def steps(reviews):
    reviews.vendor.looks = 99
    found = Steps(reviews, TEXTS)
    found.run()
    return found


def test_a_refused_job_stops_no_other_day(steps, caplog):
    (job,) = steps.reviews.vendor.jobs.values()
    job.looks, job.end = 0, "rejected"
    step = steps.run(["another"], NEXT)
    assert "1 job with 1 item at vendor is open" in step.sentence
    assert f"vendor refused job job-1 of {DAY} of reviews: line 1 is no item." in caplog.text
    assert "the next run of that day submits its items again." in caplog.text


def test_a_refused_job_of_another_day_with_a_common_key_stops_the_day_and_is_named(steps):
    (job,) = steps.reviews.vendor.jobs.values()
    job.looks, job.end = 0, "rejected"
    with pytest.raises(DeclarationError, match=f"refused job job-1 of {DAY} of reviews: line 1"):
        steps.run(TEXTS[:1], NEXT)


def test_unreadable_results_stop_no_other_day(steps, caplog):
    vendor = steps.reviews.vendor
    (job,) = vendor.jobs.values()
    job.looks, vendor.mangle = 0, lambda lines: [{"id": line["id"], "answer": 5} for line in lines]
    step = steps.run(["another"], NEXT)
    assert "1 job with 1 item at vendor is open" in step.sentence
    assert f"job job-1 of {DAY} of reviews: lookup labels: its class Labels failed" in caplog.text
    vendor.mangle = lambda lines: lines
    assert steps.run().outcomes == {"ok": 3}


def test_a_day_without_a_slot_names_an_unreadable_job_of_another_day(steps):
    steps.reviews.declare(open_jobs=1, max_items=100)
    vendor = steps.reviews.vendor
    (job,) = vendor.jobs.values()
    job.looks, vendor.mangle = 0, lambda lines: [{"id": line["id"], "answer": 5} for line in lines]
    sentence = steps.run(["another"], NEXT).sentence
    assert f"1 key is not submitted yet; job job-1 of {DAY} of reviews: lookup labels" in sentence
    steps.now += 2.5 * HOUR  # give_up, and the hour of grace
    assert "1 job with 1 item at vendor is open" in steps.run(["another"], NEXT).sentence


def test_unreadable_results_are_kept_for_a_corrected_class(steps):
    vendor = steps.reviews.vendor
    (job,), (token,) = vendor.jobs.values(), [job.token for job in steps.reviews.files.jobs()]
    job.looks, vendor.mangle = (
        0,
        lambda lines: [lines[0], *({**line, "answer": 5} for line in lines[1:])],
    )
    steps.now += 2.5 * HOUR
    with pytest.raises(TidegateError, match=f"failed: .*, `tidegate jobs forget {token}` lets go"):
        steps.run()
    assert [job.is_open for job in steps.reviews.files.jobs()] == [True]
    folder = steps.reviews.files.folder
    stored = pa.concat_tables(table for _, table in read_parts(folder, folder.parts()))
    assert stored["outcome"].to_pylist() == ["ok"]
    vendor.mangle = lambda lines: lines
    assert steps.run().outcomes == {"ok": 3}
    assert steps.reviews.bill == vendor.invoice


def test_a_day_reports_only_progress_of_its_jobs(steps):
    async def two_are_done(_, parts):
        if parts[-1] == "job-1":
            return web.json_response({"status": "running", "done": 2})
        return None

    steps.reviews.vendor.odd = two_are_done
    assert "1 job with 3 items at vendor is open, 2 of them done" in steps.run().sentence
    assert "done" not in steps.run(["another"], NEXT).sentence
    assert "done" not in steps.run(["another"], NEXT).sentence


def test_a_day_reports_no_failed_poll_of_another_days_job(steps):
    steps.reviews.vendor.jobs.clear()
    assert "404" in steps.run().sentence
    assert "404" not in steps.run(["another"], NEXT).sentence
