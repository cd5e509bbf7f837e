"""Days of one program run one after the other: each calls when the one before is published or held
back.
"""

import pytest
from aiohttp import web

import data_quality.day
from data_quality.day_quality import DayQuality
from data_quality.history import earlier_days
from data_quality.judging import QualityResult
from jobs.process.day_events import DayResult
from jobs.process.day_options import DayOptions
from jobs.process.day_pipeline import DayPipeline
from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines.engine import ENGINE, LOCAL
from jobs.schema.records import Verdict
from jobs.tables.records import run_records
from tests.support.program_here import in_this_session

DAYS = FIRST, SECOND, THIRD = ("2013-01-10", "2013-01-11", "2013-01-12")
LOST = QualityResult((Verdict("every_row_once", "failed", "error", "1 row lost"),))


class Nights:
    """Three days of ten towns, in a run. check: of a day, before its real checks."""

    def __init__(self, towns, service, monkeypatch):
        self.towns, self.service = towns, service
        self.check = lambda _day: None
        # of the other days' records at the calls of a day
        self.states = {day: set() for day in DAYS}
        for number, day in enumerate(DAYS):
            towns.write_input(day, range(10 * number, 10 * number + 10))
        service.answer = self._answer
        everyday = data_quality.day.check
        monkeypatch.setattr(
            "data_quality.day.check",
            lambda *of, **more: self.check(of[1].day) or everyday(*of, **more),
        )

    async def _answer(self, request):
        day = DAYS[int(request.path.rpartition("-")[2]) // 10]
        self.states[day].add(
            tuple(record.state for record in run_records.load("towns") if record.facts.day != day)
        )
        return web.json_response({"temp_c": 3.5})

    def run(self, **options):
        pipeline = DayPipeline(
            reference="declared.towns:towns", enrichment=self.towns.enrichment,
            quality=DayQuality(), submit=SparkSubmit(engine=LOCAL), wait=0.1,
        )  # fmt: skip
        return [
            event
            for event in pipeline.run(DAYS, DayOptions(**options))
            if isinstance(event, DayResult)
        ]


@pytest.fixture
def nights(towns, service, monkeypatch):
    monkeypatch.setenv("WEATHER_URL", service.url)
    monkeypatch.setenv(ENGINE, LOCAL)
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    return Nights(towns, service, monkeypatch)


def test_a_day_calls_after_the_day_before_is_decided_and_is_compared_with_all_earlier_days(nights):
    compared_with = {}

    def check(day):
        compared_with[day] = sorted(earlier_days("towns", day))
        return LOST if day == SECOND else None

    nights.check = check
    outcomes = nights.run()
    assert [(outcome.day, outcome.state) for outcome in outcomes] == [
        (FIRST, "published"), (SECOND, "held back"), (THIRD, "published"),
    ]  # fmt: skip
    assert [outcomes[0].record.published_version, outcomes[2].record.published_version] == [0, 1]
    assert compared_with == {FIRST: [], SECOND: [FIRST], THIRD: [FIRST]}
    assert nights.states == {
        FIRST: {()},
        SECOND: {("published",)},
        THIRD: {("published", "held back")},
    }
    assert len(nights.service.log) == 30


def test_a_red_day_is_the_last_with_the_option_until_red(nights):
    nights.check = lambda day: LOST if day == SECOND else None
    assert [(result.day, result.state) for result in nights.run(until_red=True)] == [
        (FIRST, "published"), (SECOND, "held back"),
    ]  # fmt: skip
    assert len(nights.service.log) == 20
    assert not run_records.progress_file("towns", THIRD).exists()


def test_a_day_whose_checks_crash_is_the_last_and_its_answers_are_kept(nights):
    def check(day):
        if day == SECOND:
            raise RuntimeError("no memory")

    nights.check = check
    outcomes = nights.run()
    assert [(outcome.day, outcome.state) for outcome in outcomes] == [
        (FIRST, "published"),
        (SECOND, "failed"),
    ]
    assert outcomes[1].reason.startswith("RuntimeError: no memory")
    nights.check = lambda _day: None
    assert [(result.day, result.state) for result in nights.run()] == [
        (day, "published") for day in DAYS
    ]
    assert len(nights.service.log) == 30
