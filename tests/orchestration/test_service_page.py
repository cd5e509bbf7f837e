"""The live page of a service: a real run at work, judged by what the service itself counts."""

import asyncio
import datetime as dt
import json
import threading
from functools import partial
from http import HTTPStatus
from pathlib import Path

import pytest
from aiohttp import web

from data_quality.report.pages import render_page
from jobs.commands.limits import Holder, Pause
from jobs.declare.limits.budgets import MONEY, PARTS
from jobs.limits.store_url import LIMITS_URL, STATE_HOME, limits_url, open_store
from jobs.process.spark_submit import SparkSubmit
from jobs.run.coordinator import run_leases
from jobs.run.engines.engine import ENGINE, LOCAL
from orchestration.common.service_status import LookupAtWork, ServiceStatus
from orchestration.common.table_pages import TablePages
from tests.jobs.commands.conftest import LocalDays, towns_in
from tests.orchestration.test_row_pages import text_of
from tests.support.pages import wait_for
from tests.support.program_here import in_this_session
from tests.support.readable import assert_readable
from tidegate.__main__ import main

pytestmark = pytest.mark.process

DAY = "2013-01-10"
PRICED = (
    "from tidegate import Price, Tolerance",
    "priced = replace(weather.service, prices=[Price('0.01 USD', per='request')])",
    "towns = replace(towns, lookups=[replace(weather, service=priced)])",
)


def test_money_of_a_limit_is_shown_with_the_digits_of_a_cost():
    spent = 3_100_000  # billionths
    holder = Holder("model", f"{MONEY}USD on {DAY}", 20 * PARTS, "a run", spent, 0, 0, None)
    shown = [holder.limit_shown, *map(holder.shown, (spent, 0, 1234 * PARTS))]
    assert shown == [f"20.00 USD on {DAY}", "0.0031", "0.00", "1,234.00"]


class Holding:
    """A service that answers so many requests and holds the others until it may answer more."""

    def __init__(self, service):
        self.arrived = self.with_it = self.failed = self.may_answer = 0
        service.answer = self

    async def __call__(self, request):
        self.arrived += 1
        number, self.with_it = self.arrived, self.with_it + 1
        while number > self.may_answer:  # noqa: ASYNC110 - a count
            await asyncio.sleep(0.01)
        self.with_it -= 1
        if number % 10 == 1:
            self.failed += 1
            return web.Response(status=500)
        return web.json_response({"temp_c": 1.0})


@pytest.fixture
def holding(service):
    return Holding(service)


@pytest.fixture
def days(tmp_path, monkeypatch, service, holding):
    towns = towns_in(tmp_path, monkeypatch)
    monkeypatch.setenv("WEATHER_URL", service.url)
    monkeypatch.setenv(ENGINE, LOCAL)
    monkeypatch.setenv(STATE_HOME, str(tmp_path / "state"))
    monkeypatch.delenv(LIMITS_URL)
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    monkeypatch.setattr(run_leases, "_leases", None)
    towns.declare_too(*PRICED)
    local = LocalDays(towns, service)
    service.answer = holding
    yield local
    if run_leases._leases is not None:
        run_leases._leases.close()


def now(capsys):
    """What `limits --json` tells of the service."""
    capsys.readouterr()
    assert main(["limits", "--json", "--package", "declared"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["services"]
    return found


def is_told(capsys, expected):
    counts = ("sent", "in_flight", "failed", "throttled")
    return [tuple(map(lookup.get, counts)) for lookup in now(capsys)["lookups"]] == [expected]


def test_a_run_at_work_is_shown_as_its_service_counts_it(days, holding, capsys):
    days.write_input(DAY, [f"town-{number}" for number in range(40)])
    pages = TablePages("declared", Path("data/reports"))
    assert 'href="service/weather_api"' in pages.make("/", {})[1]
    assert "No run that works here calls it now." in text_of(pages.make("/service/weather_api", {}))
    run = threading.Thread(target=days.run, args=(DAY,))
    run.start()
    for answered in (12, 25):
        holding.may_answer = answered
        wait_for(lambda: holding.with_it == 4 and holding.arrived == holding.may_answer + 4)
        # the run reports twice a second
        wait_for(partial(is_told, capsys, (answered + 4, 4, holding.failed, 0)))
        text = text_of(pages.make("/service/weather_api", {}))
        assert "4 in flight" in text
        assert f"{answered + 4} requests of these runs {holding.failed} failed 0 throttled" in text
        assert f"{(answered + 4) / 100:.2f} USD billed" in text
        assert f"towns {DAY}, weather, run " in text
        assert f"{answered} of 40 " in text
    (holder,) = [holder for holder in now(capsys)["holders"] if holder["limit"] == "calls"]
    assert (holder["amount"], holder["holds"]) == (4, 4)
    assert f"{holder['run']} 4 calls 4 4" in text
    holding.may_answer = 40
    run.join(60)
    found = pages.make("/service/weather_api", {})
    assert "No run that works here calls it now." in text_of(found)


def test_the_page_of_a_paused_service_shows_duration_and_reason(days, service, capsys):
    asyncio.run(pause(f"http weather_api at {service.url.partition('//')[2]}"))
    (found,) = now(capsys)["pauses"]
    assert found["reason"] == "429 Too Many Requests"
    text = text_of(TablePages("declared", Path("data/reports")).make("/service/weather_api", {}))
    assert f"Paused for another {round(found['seconds'])} s: 429 Too Many Requests" in text


async def pause(identity):
    store = open_store(limits_url())
    await store.step(
        identity, lambda book, now: book.close_gate(900, "429 Too Many Requests", now=now)
    )
    await store.close()


def test_a_service_without_a_lookup_is_not_found(days):
    pages = TablePages("declared", Path("data/reports"))
    status, page = pages.make("/service/%3Cb%3E", {})
    assert status == HTTPStatus.NOT_FOUND
    assert "no enrichment here asks a service named '<b>'." in text_of((status, page))
    assert pages.make("/service/weather_api/more", {}) is None


@pytest.mark.ui
def test_the_page_is_read_on_a_telephone_and_axe_finds_nothing_serious(tmp_path):
    lookup = LookupAtWork(
        "weather_api", "flights_of_a_long_name_enriched", DAY, "0123456789abcdef", "weather", 120,
        932, "rows", 64.5, "waits for calls of a killed run to end, 9 s", 124, 4, 3, 1, 12.5,
        {"USD": 0.31},
    )  # fmt: skip
    holders = [
        Holder(
            "weather_api", limit, amount, f"flights_of_a_long_name_enriched {DAY}", 4, 4, 4, 12.0
        )
        for limit, amount in (("calls", 4), (f"{MONEY}USD on {DAY}", 20 * PARTS))
    ]
    pauses = (Pause("weather_api", 12.0, "429 Too Many Requests"),)
    service = ServiceStatus("weather_api", (lookup,), tuple(holders), pauses)
    idle = ServiceStatus("weather_api", (), (), ())
    folder = tmp_path / "service"
    folder.mkdir()
    values = {"name": "weather_api", "root": "", "now": dt.datetime.now(dt.UTC)}
    for name, status, error in (("at_work", service, "lost"), ("idle", idle, "")):
        page = render_page("service.html", {**values, "service": status, "error": error})
        (folder / f"{name}.html").write_text(page)
    assert_readable(*folder.iterdir())
