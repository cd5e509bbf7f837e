"""A day that waits for jobs of a vendor: what its pages show, and how Dagster continues it."""

import asyncio
import dataclasses
import datetime as dt
import importlib
import logging
import sys
import time
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterEvent, DagsterEventType, EventLogEntry
from dagster._core.events import AssetObservationData

from jobs.run.keys.vendor_jobs import waiting_days
from jobs.run.keys.vendor_jobs.waiting_days import days_waiting
from orchestration.common.modes import Mode
from orchestration.common.start_page import describe
from orchestration.common.table_status import read_tables
from orchestration.dagster.assets.day_config import MODE, config_of_mode
from orchestration.dagster.declared import Declared
from orchestration.dagster.definitions import build_definitions
from orchestration.dagster.resources import SparkProgram
from orchestration.dagster.schedules import day_job
from orchestration.dagster.sensors.starts_days import starts_days

DAY = "2013-01-10"
TEXTS = ["text 1", "text 2", "text 3"]
WAITING = 10
WHAT = "lookup labels: 1 job with 3 items at vendor is open, since 2"


class Nights:
    """Dagster's sensor over `reviews`, by the clock of the test."""

    def __init__(self, instance):
        self.instance, self.cursor = instance, None
        self.load()
        self.now = dt.datetime.now(dt.UTC)

    def load(self):
        """As Dagster loads the code location, again after a change of the declaration."""
        declared = importlib.import_module("declared.reviews").reviews
        self.declared = Declared(
            "declared.reviews:reviews", dataclasses.replace(declared, start="2013-01-01")
        )

    def tell(self, state, run_id, day=DAY):
        """The word of a run of the day."""
        word = dict.fromkeys(("reason", "next_step", "cause", "readers_see"), "as told")
        observation = dg.AssetObservation(
            self.declared.key, partition=day, metadata=word | {"state": state}
        )
        event = DagsterEvent(
            DagsterEventType.ASSET_OBSERVATION.value, self.declared.job_name,
            event_specific_data=AssetObservationData(observation),
        )  # fmt: skip
        entry = EventLogEntry(
            None, logging.INFO, "", run_id, self.now.timestamp(), dagster_event=event
        )
        self.instance.handle_new_event(entry)

    def requested(self):
        """The runs that the sensor asks for because a day waited."""
        sensor = starts_days([self.declared], [day_job(self.declared)], lambda: self.now)
        context = dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor,
            definitions=build_definitions([self.declared], SparkProgram()),
        )  # fmt: skip
        found = sensor(context)
        self.cursor = found.cursor
        return [request for request in found.run_requests if "tidegate/again_after" in request.tags]

    def requests(self):
        return [request.run_key for request in self.requested()]


@pytest.fixture
def nights(reviews):
    with dg.DagsterInstance.ephemeral() as instance:
        yield Nights(instance)


def test_a_waiting_day_is_started_once_when_the_vendor_is_done(reviews, nights):
    reviews.vendor.looks = 3
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WAITING
    nights.tell("waiting", "run-1")
    assert days_waiting(nights.declared.enrichment) == {DAY: True}
    reviews.vendor.log.clear()
    assert [nights.requests() for _ in range(3)] == [[], [], []]
    again = [f"reviews {DAY} after run-1"]
    assert nights.requests() == nights.requests() == again  # Dagster starts a run per key
    assert {path for _, path in reviews.vendor.log} == {"/jobs/job-1"}  # no results are read
    assert reviews.run(DAY) == 0
    nights.tell("published", "run-2")
    assert nights.requests() == []
    assert days_waiting(nights.declared.enrichment) == {}


def test_a_waiting_day_is_started_also_after_another_run_found_it_taken(reviews, nights):
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WAITING
    nights.tell("waiting", "run-1")  # a run of several days, which holds the day until its end
    nights.tell("not started", "run-2")
    assert nights.requests() == []
    assert nights.requests() == [f"reviews {DAY} after run-1"]


@pytest.mark.parametrize(
    ("text", "changed"), [("max_items=", "version=2, max_items="), ("class Labels", "class Topics")]
)
def test_a_waiting_day_is_started_also_when_its_lookup_was_declared_otherwise_meanwhile(
    reviews, nights, text, changed
):
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WAITING
    nights.tell("waiting", "run-1")
    assert nights.requests() == []
    declared = Path("declared/reviews.py")
    text = declared.read_text().replace(text, changed)
    declared.write_text(text.replace("[Labels]", "[Topics]") if "Topics" in changed else text)
    sys.modules.pop("declared.reviews")
    nights.load()
    again = [f"reviews {DAY} after run-1"]
    assert nights.requests() == nights.requests() == again
    # by a command, of which no run of Dagster has told yet
    assert reviews.run_until_over(DAY) == 0
    assert nights.requests() == []


def test_a_refreshed_day_that_waited_goes_on_as_a_refresh(reviews, nights):
    reviews.vendor.looks = 0
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WAITING
    run = nights.instance.create_run_for_job(
        build_definitions([nights.declared], SparkProgram()).resolve_job_def("reviews_nightly"),
        tags={MODE: "refreshed"},
    )
    nights.tell("waiting", run.run_id)
    (request,) = nights.requested()  # another mode would ask for expired answers, too
    assert request.run_config == config_of_mode(nights.declared, Mode.refreshed)


def test_a_vendor_that_takes_no_jobs_is_left_alone_for_a_while(reviews, nights):
    reviews.vendor.refuse = 429
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WAITING
    nights.tell("waiting", "run-1")
    assert nights.requests() == []
    nights.now += dt.timedelta(minutes=15)
    assert nights.requests() == [f"reviews {DAY} after run-1"]


def test_vendors_that_do_not_answer_delay_the_sensor_by_seconds(reviews, nights, monkeypatch):
    reviews.declare(max_items=1, open_jobs=6)
    for day in (DAY, "2013-01-11"):
        reviews.write_input(day, [f"{day} {text}" for text in TEXTS])
        assert reviews.run(day) == WAITING
        nights.tell("waiting", f"run-of-{day}", day)
    monkeypatch.setattr(waiting_days, "QUICK", 1.0)

    async def hang(_request, _parts):
        await asyncio.sleep(60)

    reviews.vendor.odd = hang
    reviews.vendor.log.clear()
    began = time.monotonic()
    assert nights.requests() == []
    assert time.monotonic() - began < 10
    assert len(reviews.vendor.log) == len(TEXTS)  # of a single day
    reviews.vendor.odd = None
    monkeypatch.setattr(waiting_days, "QUICK", 60.0)
    nights.requests()  # after which its jobs are over
    assert len(nights.requests()) == 2


def test_the_pages_say_what_a_day_waits_for_since_when_and_until_when(reviews):
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WAITING
    page = Path("data/reports/reviews", DAY, "index.html").read_text()
    assert WHAT in page
    assert "UTC at the latest" in page
    now = dt.datetime(2013, 1, 11, 7, tzinfo=dt.UTC)
    (table,) = describe(read_tables("declared", 14, now), now, Path("data/reports"))["earlier"]
    ((day, state, reason, href),) = table["days"]
    assert (day, state, bool(href)) == (DAY, "waiting", True)
    assert WHAT in reason
