"""The night of an outage: the day is started again until its deadline, and people are alerted once
per cause.
"""

import dataclasses
import datetime as dt
import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dagster as dg
import pytest
from dagster import DagsterEvent, DagsterEventType, DagsterRunStatus, EventLogEntry
from dagster._core.events import AssetObservationData
from dagster._core.test_utils import create_run_for_test

from enrichments.flights import flights
from jobs.schema.records import DayFacts, DayMetrics, DayRecord, Verdict
from jobs.tables.records import run_records
from orchestration.common.modes import Mode
from orchestration.common.webhook import WEBHOOK
from orchestration.dagster.assets.day_config import config_of_mode
from orchestration.dagster.declared import Declared
from orchestration.dagster.definitions import build_definitions
from orchestration.dagster.maintenance import DAYS_TO_RUN
from orchestration.dagster.resources import SparkProgram
from orchestration.dagster.schedules import day_job
from orchestration.dagster.sensors.alerts import alerts
from orchestration.dagster.sensors.freshness import freshness_check
from orchestration.dagster.sensors.reports_days import reports_days
from orchestration.dagster.sensors.starts_days import starts_days

pytestmark = pytest.mark.process

DAY = "2026-11-19"
DECLARED = Declared("a:flights", dataclasses.replace(flights, start="2026-11-01", end=None))
RUN_OF = {"tidegate/enrichment": "flights_enriched"}
OTHER = Declared(
    "b:other", dataclasses.replace(flights, name="other_flights", start="2026-11-01", end=None)
)
OUTAGE = "weather_api stopped answering at 02:20:00 UTC (503); gate closed, waited 1800 s, gave up."
BY_SERVICE = "weather_api stopped: service"


def at(time: str, day: str = "2026-11-20") -> dt.datetime:
    return dt.datetime.fromisoformat(f"{day}T{time}:00+00:00")


@pytest.fixture
def instance(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the records of runs are looked for
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def tell(
    instance, state: str, time: str, *, day: str = DAY, of: Declared = DECLARED, **reported: str
) -> None:
    """A word of a run, as the step observes it."""
    word = {
        "state": state,
        "reason": OUTAGE,
        "next_step": "Nothing.",
        "cause": BY_SERVICE,
        "readers_see": "11-18",
    }
    observation = dg.AssetObservation(of.key, partition=day, metadata=word | reported)
    event = DagsterEvent(
        DagsterEventType.ASSET_OBSERVATION.value,
        of.job_name,
        event_specific_data=AssetObservationData(observation),
    )
    run_id = f"run of {day} at {time}"
    instance.handle_new_event(
        EventLogEntry(None, logging.INFO, "", run_id, at(time).timestamp(), dagster_event=event)
    )


def publish(
    time: str, *, day: str = DAY, of: Declared = DECLARED, passed: str = "", red: str = ""
) -> None:
    """The record of a run that published the day. passed, red: one check each that says so."""
    verdicts = [Verdict(passed, "passed", "error", "It holds.")] if passed else []
    verdicts += [Verdict(red, "failed", "warn", "It does not.")] if red else []
    facts = DayFacts(
        of.facts, day, f"published {time}", (), (), "", (), (), at(time).isoformat(), ""
    )
    figures, published_at = DayMetrics(0, 0, 0, ()), at(time).isoformat()
    record = DayRecord(
        facts, figures, tuple(verdicts), state="published", published_at=published_at
    )
    run_records.save(record)


# -- started again
# --------------------------------------------------------------------------------------------------
def asked_again(instance, time: str, of: Declared = DECLARED) -> list[tuple[str, str]]:
    sensor = starts_days([of], [day_job(of)], lambda: at(time))
    context = dg.build_sensor_context(
        instance=instance, definitions=build_definitions([of], SparkProgram())
    )
    return [(request.job_name, request.partition_key) for request in sensor(context).run_requests]


def test_a_day_that_a_service_stopped_is_started_again_every_quarter_of_an_hour_until_its_deadline(
    instance,
):
    assert asked_again(instance, "02:30") == []
    tell(instance, "running", "02:15")
    tell(instance, "stopped: service", "02:50")
    assert asked_again(instance, "03:04") == []
    assert asked_again(instance, "03:05") == [("flights_enriched_nightly", DAY)]
    tell(instance, "stopped: service", "06:14")
    assert asked_again(instance, "06:29") == [("flights_enriched_nightly", DAY)]
    tell(instance, "stopped: service", "06:16")  # it would start at 06:31
    assert asked_again(instance, "06:29") == []
    assert asked_again(instance, "06:31") == []


@pytest.mark.parametrize(
    "state", ["stopped: credentials", "stopped: budget", "held back", "cancelled", "failed"]
)
def test_a_day_that_needs_a_person_is_not_restarted(instance, state):
    tell(instance, "stopped: service", "02:20")
    tell(instance, state, "02:50")
    assert asked_again(instance, "03:30") == []


def test_a_stopped_run_is_followed_by_one_run_and_not_while_a_run_is_at_work(instance):
    tell(instance, "stopped: service", "02:50")
    sensor = starts_days([DECLARED], [day_job(DECLARED)], lambda: at("03:10"))
    context = dg.build_sensor_context(
        instance=instance, definitions=build_definitions([DECLARED], SparkProgram())
    )
    keys = {sensor(context).run_requests[0].run_key for _ in range(3)}
    # Dagster starts one run per key
    assert keys == {f"flights_enriched {DAY} after run of {DAY} at 02:50"}
    started = create_run_for_test(
        instance,
        DECLARED.job_name,
        tags=RUN_OF | {"dagster/partition": DAY},
        status=DagsterRunStatus.STARTED,
    )
    assert asked_again(instance, "03:10") == []
    instance.report_run_failed(started)
    assert asked_again(instance, "03:10") == [("flights_enriched_nightly", DAY)]


def refresh_ran(instance, days: dict[str, list[str]]) -> dg.DagsterRun:
    """A run of the job that marks answers, with the days that stand on them."""
    tags = {DAYS_TO_RUN: json.dumps(days)}
    return create_run_for_test(
        instance, "tidegate_refresh_answers", tags=tags, status=DagsterRunStatus.SUCCESS
    )


def test_days_with_refreshed_answers_are_requested_once_and_in_their_mode(instance):
    cursor, asked = None, []
    now = dt.datetime.now(dt.UTC)
    run = refresh_ran(instance, {DECLARED.name: ["2026-11-02", DAY]})
    for _ in range(2):
        sensor = starts_days([DECLARED], [day_job(DECLARED)], lambda: now)
        definitions = build_definitions([DECLARED], SparkProgram())
        result = sensor(
            dg.build_sensor_context(instance=instance, cursor=cursor, definitions=definitions)
        )
        cursor = result.cursor
        asked += [
            (request.job_name, request.partition_key, request.run_config)
            for request in result.run_requests
        ]
    refreshed = config_of_mode(DECLARED, Mode.refreshed)
    assert asked == [(DECLARED.job_name, day, refreshed) for day in ("2026-11-02", DAY)]
    assert run.run_id in cursor


def test_refreshed_answers_of_a_removed_enrichment_delay_no_other_day(instance):
    refresh_ran(instance, {"gone": [DAY], DECLARED.name: [DAY]})
    sensor = starts_days([DECLARED], [day_job(DECLARED)], lambda: dt.datetime.now(dt.UTC))
    definitions = build_definitions([DECLARED], SparkProgram())
    result = sensor(dg.build_sensor_context(instance=instance, definitions=definitions))
    assert [request.job_name for request in result.run_requests] == [DECLARED.job_name]


def test_a_refreshed_day_before_the_first_partition_delays_no_other_day(instance):
    refresh_ran(instance, {DECLARED.name: ["2026-10-31", DAY]})
    sensor = starts_days([DECLARED], [day_job(DECLARED)], lambda: dt.datetime.now(dt.UTC))
    definitions = build_definitions([DECLARED], SparkProgram())
    data = sensor.evaluate_tick(
        dg.build_sensor_context(
            instance=instance,
            definitions=definitions,
        )
    )
    assert [request.partition_key for request in data.run_requests] == [DAY]


# -- told
# --------------------------------------------------------------------------------------------------
class Webhook(ThreadingHTTPServer):
    """A real one, which keeps what it is told. status: what it answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.status = 200
        self.location = ""  # of a redirect
        self.requests: list[str] = []  # the method of each
        self.reported: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook/secret"

    def take(self) -> list[str]:
        """The texts since the last look, each without its link."""
        texts, self.reported = (
            [message["text"].removesuffix(f" {message['url']}") for message in self.reported],
            [],
        )
        return texts


class Receiver(BaseHTTPRequestHandler):
    server: Webhook

    def do_GET(self) -> None:
        self.server.requests.append("GET")
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        self.server.requests.append("POST")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.status == 200:
            self.server.reported.append(body)
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its parent's name
        """Nothing."""


@pytest.fixture
def webhook(monkeypatch):
    with Webhook() as server:
        monkeypatch.setenv(WEBHOOK, server.url)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Looking:
    """The sensor, with its cursor, as the daemon would call it."""

    def __init__(self, instance, *all_declared: Declared) -> None:
        self.instance = instance
        self.declared = all_declared or (DECLARED,)
        self.cursor: str | None = None

    def at(self, time: str) -> str:
        """What the sensor says of itself."""
        sensor = alerts(self.declared, lambda: at(time))
        result = sensor(dg.build_sensor_context(instance=self.instance, cursor=self.cursor))
        self.cursor = result.cursor or self.cursor
        return result.skip_reason.skip_message


def test_an_outage_is_reported_once_a_night_for_all_enrichments_and_once_when_it_ends(
    instance, webhook
):
    looking = Looking(instance, DECLARED, OTHER)
    looking.at("02:00")
    tell(instance, "running", "02:15")
    tell(instance, "stopped: service", "02:50")
    looking.at("02:51")
    assert webhook.take() == [
        (
            f"[team:data-eng] flights_enriched {DAY} not published (stopped: service). {OUTAGE} "
            "Readers see: 11-18. Next: Nothing."
        )
    ]
    tell(instance, "stopped: service", "03:30")  # started again, and stopped again
    tell(instance, "stopped: service", "03:31", day="2026-11-18")
    tell(instance, "stopped: service", "03:32", of=OTHER)
    looking.at("03:35")
    publish("04:00", day="2026-11-18")
    publish("04:01", of=OTHER)
    looking.at("04:02")
    assert webhook.take() == []
    publish("07:58")
    looking.at("07:59")
    assert webhook.take() == [
        (
            f"[team:data-eng] flights_enriched {DAY}, the last of 3 days of one cause, published "
            f"07:58 UTC, 88 min after its deadline. Over: {BY_SERVICE}."
        )
    ]
    looking.at("08:10")
    assert webhook.take() == []


def test_a_day_that_comes_late_is_reported_with_the_minutes_after_its_deadline(instance, webhook):
    looking = Looking(instance)
    looking.at("02:00")
    tell(instance, "held back", "02:50", cause="flights_enriched held back: every_row_once")
    looking.at("02:51")
    looking.at("06:31")  # the deadline: of a cause that was told nothing more is said
    assert len(webhook.take()) == 1
    publish("07:58")
    looking.at("08:00")
    assert webhook.take() == [
        (
            f"[team:data-eng] flights_enriched {DAY} published 07:58 UTC, 88 min after its "
            "deadline. Over: flights_enriched held back: every_row_once."
        )
    ]


def test_sentences_of_a_message_end_with_one_full_stop(instance, webhook):
    looking = Looking(instance)
    looking.at("02:00")
    tell(
        instance,
        "failed",
        "02:50",
        reason="5 rows lost; first: flight 17",
        cause="flights_enriched failed: there is none.",
    )
    looking.at("02:51")
    publish("04:00")
    looking.at("04:01")
    failed, over = webhook.take()
    assert "(failed). 5 rows lost; first: flight 17. Readers see: 11-18. Next" in failed
    assert over.endswith("Over: flights_enriched failed: there is none.")


def test_a_lasting_cause_is_reported_again_the_next_night(instance, webhook):
    looking = Looking(instance)
    looking.at("02:00")
    tell(instance, "stopped: credentials", "02:50", cause="weather_api stopped: credentials")
    looking.at("02:51")
    assert len(webhook.take()) == 1
    # of the next night
    tell(instance, "stopped: credentials", "14:50", cause="weather_api stopped: credentials")
    looking.at("14:51")
    assert len(webhook.take()) == 1


def test_a_deadline_that_passes_without_a_run_is_reported(instance, webhook):
    looking = Looking(instance)
    looking.at("02:00")
    looking.at("06:29")
    assert webhook.take() == []
    looking.at("06:30")
    looking.at("06:31")
    assert webhook.take() == [
        (
            f"[team:data-eng] flights_enriched {DAY} not published by 06:30 UTC, its deadline; no run "
            "of it has failed."
        )
    ]


def test_a_missed_deadline_links_the_run_that_failed_without_a_report(
    instance, webhook, monkeypatch
):
    monkeypatch.setenv("TIDEGATE_UI_URL", "")  # as if it were not set
    looking = Looking(instance)
    looking.at("02:00")
    tags = RUN_OF | {"dagster/partition": DAY}  # of a run that could not load the declarations, say
    failed = create_run_for_test(
        instance, DECLARED.job_name, tags=tags, status=DagsterRunStatus.FAILURE
    )
    looking.at("06:30")
    (message,) = webhook.reported
    assert message["text"] == (
        f"[team:data-eng] flights_enriched {DAY} not published by 06:30 UTC, its deadline; a run "
        f"of it failed, and its page says why. http://127.0.0.1:3000/runs/{failed.run_id}"
    )


def test_a_deadline_that_passes_while_the_day_waits_for_a_vendor_names_what_it_waits_for(
    instance, webhook
):
    looking = Looking(instance)
    looking.at("02:00")
    tell(instance, "waiting", "02:50", reason="lookup labels: 1 job is open.")
    looking.at("06:30")
    assert webhook.take() == [
        (
            f"[team:data-eng] flights_enriched {DAY} not published by 06:30 UTC, its deadline; it "
            "waits: lookup labels: 1 job is open."
        )
    ]


def test_a_run_that_reads_a_table_alerts_nobody_of_it_and_leaves_its_stopped_day_to_the_sensor(
    instance, webhook
):
    looking = Looking(instance)
    looking.at("02:00")
    tell(instance, "stopped: service", "02:50")
    looking.at("02:51")
    assert len(webhook.take()) == 1
    tell(instance, "", "02:52", cause="")  # of another enrichment, about its input
    looking.at("02:53")
    assert webhook.take() == []
    assert len(asked_again(instance, "03:06")) == 1


def unreadable(of: Declared) -> None:
    """A folder where the record of a run should be."""
    (run_records.folder(of.name, DAY) / "run.json").mkdir(parents=True)


def test_an_unreadable_record_silences_no_other_table_and_repeats_no_message(instance, webhook):
    looking = Looking(instance, DECLARED, OTHER)
    looking.at("02:00")
    tell(instance, "stopped: service", "02:50")
    unreadable(DECLARED)
    looking.at("02:51")
    assert len(webhook.take()) == 1
    for time in ("06:31", "06:32"):
        message = looking.at(time)
        assert f"flights_enriched: record data/runs/flights_enriched/{DAY}/run.json cann" in message
    (of_the_other,) = webhook.take()
    assert f"other_flights {DAY} not published by 06:30 UTC" in of_the_other


@pytest.mark.parametrize(
    "state", ["running", "published", "cancelled", "not started", "crashed", "waiting"]
)
def test_no_alert_is_sent_for_a_running_or_successful_day_or_a_persons_action(
    instance, webhook, state
):
    looking = Looking(instance)
    looking.at("02:00")
    tell(instance, state, "02:50")
    looking.at("02:51")
    assert webhook.take() == []


def test_a_message_that_the_webhook_refuses_is_sent_again_and_its_address_is_not_shown(
    instance, webhook
):
    looking = Looking(instance)
    looking.at("02:00")
    tell(instance, "stopped: service", "02:50")
    webhook.status = 500
    message = looking.at("02:51")
    assert message == "The webhook at 127.0.0.1 took 0 messages, then none: 500."
    webhook.status = 200
    assert looking.at("02:52") == "1 messages sent."
    assert len(webhook.take()) == 1


@pytest.mark.parametrize("status", range(300, 309))
def test_a_redirected_message_is_not_delivered_and_the_status_is_named(instance, webhook, status):
    looking = Looking(instance)
    looking.at("02:00")
    tell(instance, "stopped: service", "02:50")
    webhook.status, webhook.location = status, webhook.url
    message = looking.at("02:51")
    assert f"took 0 messages, then none: {status}, a redirect, which is not followed." in message
    assert webhook.requests == ["POST"]
    webhook.status, webhook.location = 200, ""
    assert looking.at("02:52") == "1 messages sent."
    assert len(webhook.take()) == 1


@pytest.mark.parametrize(
    "address",
    [
        *("hooks.example/SECRET", "http://127.0.0.1:port/SECRET", "http://[h/SECRET"),
        *(
            "file:///etc/hostname?SECRET",
            "data:,SECRET",
            "ftp://127.0.0.1/SECRET",
            "http:///SECRET",
        ),
    ],
)
def test_a_webhook_that_is_no_address_is_reported_without_its_value(instance, monkeypatch, address):
    monkeypatch.setenv(WEBHOOK, address)
    looking = Looking(instance)
    looking.at("02:00")
    tell(instance, "stopped: service", "02:50")
    message = looking.at("02:51")
    assert message.endswith(
        f" took 0 messages, then none: {WEBHOOK} must be an http:// or https:// address."
    )
    assert "SECRET" not in message


def test_without_a_webhook_the_sensor_says_that_nobody_is_alerted(instance, monkeypatch):
    monkeypatch.delenv(WEBHOOK, raising=False)
    assert Looking(instance).at("02:00") == f"{WEBHOOK} is not set: no alert is sent."


# -- in time
# --------------------------------------------------------------------------------------------------
def test_the_deadline_check_judges_the_due_day_and_not_the_last_published_day(instance):
    cursor, reported = None, []
    publish("05:00", day="2026-11-10")  # a backfill of an old day
    for time in ("06:29", "06:30", "06:31", "07:59"):
        if time == "07:59":
            publish("07:58")
        sensor = reports_days([DECLARED], lambda time=time: at(time))
        result = sensor(dg.build_sensor_context(instance=instance, cursor=cursor))
        cursor = result.cursor
        reported += [(time, event.passed, event.description) for event in result.asset_events]
    before = "2026-11-18 is not published; 06:30 UTC, its deadline, has passed."
    missing = f"{DAY} is not published; 06:30 UTC, its deadline, has passed."
    late = f"{DAY} was published at 2026-11-20 07:58 UTC, 88 min after 06:30 UTC, its deadline."
    assert reported == [("06:29", False, before), ("06:30", False, missing), ("07:59", False, late)]


def test_a_day_published_before_its_deadline_passes_a_check_run_by_hand(instance):
    publish("04:00", passed="every_row_once", red="weather__answers_in_range")
    publish("05:00", day="2026-11-10", passed="every_row_once")  # a backfill
    result = freshness_check(DECLARED, lambda: at("07:00"))()
    assert result.passed
    assert result.description == (
        f"{DAY} was published at 2026-11-20 04:00 UTC, before 06:30 UTC, its deadline."
    )
    assert result.severity == dg.AssetCheckSeverity.WARN
    assert result.metadata["checks"].value == "1 passed, red: weather__answers_in_range"
