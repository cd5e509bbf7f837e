"""Days of one Spark program overlap: a day calls while the one before is checked and published, each in its turn."""

import asyncio
import threading
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from aiohttp import web

import data_quality.day
from data_quality.day_quality import DayQuality
from data_quality.history import earlier_days
from data_quality.judging import QualityResult
from jobs.process.day_events import DayOutcome
from jobs.process.day_options import DayOptions
from jobs.process.day_pipeline import DayPipeline
from jobs.process.spark_submit import SparkSubmit
from jobs.schema import Verdict
from jobs.tables.records import run_records
from tests.support.program_here import in_this_session

pytestmark = pytest.mark.spark
DAYS = FIRST, SECOND, THIRD = ("2013-01-10", "2013-01-11", "2013-01-12")
LOST = QualityResult((Verdict("every_row_once", "failed", "error", "1 row lost"),))
IN_TIME = 60.0  # s
LONG_ENOUGH = 5.0  # s, for a day to be planned and to call, if it does not wait
PLAIN = (  # keys that need no Spark, and time for calls that the service holds
    f"weather = replace(weather, keys={{'town': 'town'}}, timeout={IN_TIME})",
    "towns = replace(towns, lookups=[weather])",
)
KILLED_ONCE = """
import os, signal, time
from pathlib import Path
from data_quality.day import check as everyday


def check(*of):
    if not Path("killed").exists():
        while not Path("called").exists():
            time.sleep(0.01)
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return everyday(*of)
"""


def in_two_tasks(day):
    """The input in two files, so that Spark's workers make its calls in both slots; towns without spaces."""
    file = Path(f"data/raw/towns/date={day}/part-0.parquet")
    rows = pq.read_table(file, partitioning=None)
    rows = rows.set_column(1, "town", pc.utf8_trim_whitespace(rows["town"]))
    pq.write_table(rows.slice(0, 5), file)
    pq.write_table(rows.slice(5), file.with_name("part-1.parquet"))


def in_one_task(day):
    """The input in one file again."""
    folder = Path(f"data/raw/towns/date={day}")
    rows = pq.read_table(folder, partitioning=None)
    (folder / "part-1.parquet").unlink()
    pq.write_table(rows, folder / "part-0.parquet")


class Nights:
    """Three days of ten towns, in a run. answer: of the service, by day. check: of a day, before its real checks."""

    def __init__(self, towns, service, monkeypatch):
        self.towns, self.service = towns, service
        self.called = {day: threading.Event() for day in DAYS}  # by its first call
        self.answer = lambda _day: web.json_response({"temp_c": 3.5})
        self.check = lambda _day: None
        self.over = {day: threading.Event() for day in DAYS}  # published, or held back, or failed
        self.answers_after = {}  # day -> the event that the service awaits before its answers
        towns.declare_too(*PLAIN)
        for number, day in enumerate(DAYS):
            towns.write_input(day, range(10 * number, 10 * number + 10))
            in_two_tasks(day)
        service.answer = self._answer
        everyday = data_quality.day.check
        monkeypatch.setattr("data_quality.day.check", lambda *of: self.check(of[1].day) or everyday(*of))

    async def _answer(self, request):
        day = self.day_of(request.path)
        self.called[day].set()
        if day in self.answers_after:
            assert await asyncio.to_thread(self.answers_after[day].wait, IN_TIME)
        return self.answer(day)

    @staticmethod
    def day_of(path):
        return DAYS[int(path.rpartition("-")[2]) // 10]

    def run(self, checks="data_quality.day:check", **options):
        pipeline = DayPipeline(
            reference="declared.towns:towns", enrichment=self.towns.enrichment, quality=DayQuality(checks),
            submit=SparkSubmit(), wait=0.1,
        )  # fmt: skip
        outcomes = []
        for event in pipeline.run(DAYS, DayOptions(**options)):
            if isinstance(event, DayOutcome):
                outcomes.append(event)
                self.over[event.day].set()
        return outcomes

    def asked(self):
        return [self.day_of(path) for path in self.service.log]


@pytest.fixture
def nights_of_a_process(towns, service, monkeypatch):
    monkeypatch.setenv("WEATHER_URL", service.url)
    return Nights(towns, service, monkeypatch)


@pytest.fixture
def nights(nights_of_a_process, service, spark, monkeypatch):
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    monkeypatch.setitem(spark.sparkContext.environment, "WEATHER_URL", service.url)
    return nights_of_a_process


def test_a_day_calls_while_the_one_before_is_checked_and_all_are_judged_and_published_in_order(nights):
    compared_with = {}

    def check(day):
        compared_with[day] = sorted(earlier_days("towns", day))
        if day != THIRD:
            assert nights.called[DAYS[DAYS.index(day) + 1]].wait(IN_TIME)

    nights.check = check
    nights.answers_after = {SECOND: nights.over[FIRST], THIRD: nights.over[SECOND]}
    outcomes = nights.run()
    assert [(one.day, one.state, one.record.published_version) for one in outcomes] == [
        (FIRST, "published", 0), (SECOND, "published", 1), (THIRD, "published", 2),
    ]  # fmt: skip
    assert compared_with == {FIRST: [], SECOND: [FIRST], THIRD: [FIRST, SECOND]}
    assert nights.asked() == [day for day in DAYS for _ in range(10)]


def test_a_day_calls_only_when_the_one_before_is_published_where_a_red_day_is_the_last(nights):
    states = []

    def answer(day):
        if day == SECOND:
            states.extend(record.state for record in run_records.load("towns", FIRST))
        return web.json_response({"temp_c": 3.5})

    nights.answer = answer
    nights.check = lambda day: LOST if day == SECOND else None
    outcomes = nights.run(until_red=True)
    assert [(one.day, one.state) for one in outcomes] == [(FIRST, "published"), (SECOND, "held back")]
    assert states == ["published"] * 10
    assert nights.asked() == [FIRST] * 10 + [SECOND] * 10
    assert not run_records.progress_file("towns", THIRD).exists()


def small(nights):
    in_one_task(SECOND)


def without_ledger(nights):
    nights.towns.declare_too("towns = replace(towns, ledger=None)")


def with_key_expression(nights):
    nights.towns.declare_too(
        "towns = replace(towns, lookups=[replace(weather, keys={'town': 'reverse(reverse(town))'})])"
    )


def with_expectation(nights):
    nights.towns.declare_too(
        "from tidegate import Expectation",
        "towns = replace(towns, expectations=[Expectation('expect_column_values_to_not_be_null', column='temp_c')])",
    )


@pytest.mark.proof
@pytest.mark.parametrize("declare", [small, without_ledger, with_key_expression, with_expectation])
def test_a_day_calls_only_when_the_one_before_is_decided_where_both_want_the_same_cores_or_no_ledger_keeps_answers(
    nights, declare
):
    states = []

    def answer(day):
        if day == SECOND:
            states.extend(record.state for record in run_records.load("towns", FIRST))
        return web.json_response({"temp_c": 3.5})

    def check(day):
        if day == FIRST:
            nights.called[SECOND].wait(LONG_ENOUGH)
            return LOST
        return None

    declare(nights)
    nights.answer = answer
    nights.check = check
    assert [one.state for one in nights.run()] == ["held back", "published", "published"]
    assert states == ["held back"] * 10


@pytest.mark.proof
def test_a_service_that_stops_the_next_day_leaves_the_one_that_is_checked_to_be_published(nights):
    nights.answer = lambda day: web.json_response({"temp_c": 3.5}, status=200 if day == FIRST else 401)
    nights.check = lambda _day: None if nights.called[SECOND].wait(IN_TIME) else LOST
    outcomes = nights.run()
    assert [(one.day, one.state) for one in outcomes] == [(FIRST, "published"), (SECOND, "stopped: credentials")]
    assert THIRD not in nights.asked()


@pytest.mark.proof
def test_a_day_whose_checks_break_off_is_the_last_and_answers_of_the_next_are_kept(nights):
    def check(day):
        assert nights.called[SECOND].wait(IN_TIME)
        raise RuntimeError(f"no memory for {day}")

    nights.check = check
    (outcome,) = nights.run()
    assert (outcome.day, outcome.state) == (FIRST, "failed")
    assert outcome.reason.startswith(f"RuntimeError: no memory for {FIRST}")
    nights.check = lambda _day: None
    assert [(one.day, one.state) for one in nights.run()] == [(day, "published") for day in DAYS]
    assert nights.asked() == [day for day in DAYS for _ in range(10)]


@pytest.mark.proof
def test_a_stop_of_the_next_day_is_told_too_where_checks_break_off_and_the_last_line_is_why_they_did(nights, capsys):
    def check(day):
        assert nights.called[SECOND].wait(IN_TIME)
        raise RuntimeError(f"no memory for {day}")

    nights.answer = lambda day: web.json_response({"temp_c": 3.5}, status=200 if day == FIRST else 401)
    nights.answers_after = {SECOND: nights.over[FIRST]}
    nights.check = check
    outcomes = nights.run()
    assert [(one.day, one.state) for one in outcomes] == [(FIRST, "failed"), (SECOND, "stopped: credentials")]
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"RuntimeError: no memory for {FIRST}")


@pytest.mark.proof
def test_a_program_killed_while_a_day_is_checked_and_the_next_calls_publishes_each_day_once_when_it_is_run_again(
    nights_of_a_process,
):
    nights = nights_of_a_process
    Path("killed_once.py").write_text(KILLED_ONCE)

    def answer(day):
        if day == SECOND:
            Path("called").touch()
        return web.json_response({"temp_c": 3.5})

    nights.answer = answer
    (outcome,) = nights.run("killed_once:check")
    assert (outcome.day, outcome.crashed) == (FIRST, True)
    outcomes = nights.run("killed_once:check")
    assert [(one.day, one.record.published_version, one.record.figures.rows_out) for one in outcomes] == [
        (FIRST, 0, 10), (SECOND, 1, 10), (THIRD, 2, 10),
    ]  # fmt: skip
    assert nights.asked().count(FIRST) == nights.asked().count(THIRD) == 10
