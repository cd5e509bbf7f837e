"""A vendor of a waterfall that is down: the next one is asked only where that is declared."""

import pytest

from jobs.tables.records import run_records
from tests.jobs.commands.chaining.conftest import DAY

KEYS = [f"k{number:02}" for number in range(24)]
DOWN = """
import datetime as dt
from tidegate import Outage, Waterfall
def slow(name, **more):
    outage = Outage(after=3, wait_at_most=dt.timedelta(0))
    service = Service(name=name, url=Env("VENDOR_URL"), max_concurrency=1, outage=outage)
    return vendor(name, service=service, keys={"key": "key"}, returns="text STRING", **more)
a, b = slow("a", on_error="dead_letter"), slow("b", on_error="dead_letter")
c = vendor("c", keys={"key": "text"}, returns="score INT", when="firm_vendor = 'b'")
firms = table(Waterfall(name="firm", of=[a, b], spill_on=["timeout", "outage"]), c, tolerance=Tolerance())
"""


def falls_silent(firms, vendor, after, status=500):
    """The vendor answers this many requests, and this status to all others."""
    vendors = firms.vendors
    usual = vendors._answer

    async def answer(request):
        name = request.path.split("/")[1]
        if name == vendor and len(vendors.asked(vendor)) >= after:
            vendors.answers[name, request.path.split("/", 2)[2]] = status
        return await usual(request)

    return answer


@pytest.mark.parametrize(
    ("after", "status"),
    [(0, 500), (12, 500), pytest.param(24, 500, marks=pytest.mark.proof), (12, 503)],
)
def test_the_next_vendor_is_called_for_keys_that_an_outage_left_unanswered(
    firms, service, after, status
):
    firms.declare(DOWN)
    known = {("a", key): {"text": f"A {key}"} for key in KEYS[:-2]}  # the last two: misses
    known |= {("b", key): {"text": f"B {key}"} for key in KEYS[1:]}
    firms.vendors.answers = dict(known)
    service.answer = falls_silent(firms, "a", after, status)
    firms.write_input({"key": KEYS})
    ended = firms.run()
    asked = firms.vendors.asked("a")
    # three failures in a row, or two pauses, are the outage, and nothing is asked after them
    assert len(asked) == min(after + (3 if status == 500 else 2), len(KEYS))
    answered = set(asked) if after == 24 else set(sorted_by_call(firms, "a")[:after])
    found = {key for key in answered if ("a", key) in known}
    rows = firms.rows()
    assert {row["key"] for row in rows if row["firm_vendor"] == "a"} == found
    assert sorted(firms.vendors.asked("b")) == [key for key in KEYS if key not in found]
    for row in rows:
        key = row["key"]
        vendor = "a" if key in found else "b" if ("b", key) in known else None
        text = known[vendor, key]["text"] if vendor else None
        assert (row["firm_vendor"], row["text"]) == (vendor, text)
        asked_a = "ok" if key in found else "miss" if key in answered else "not_asked"
        assert row["a_status"] == asked_a
    (warning, *_), lost = firms.record().warnings or ("",), KEYS[0] not in found
    assert ("a at" in warning and "The next vendor was asked" in warning) == (after < 24)
    # the row that no vendor answered is over the tolerance of 0
    assert set(firms.red()) == ({"a__errors_tolerated"} if lost else set())
    assert ended == (1 if lost else 0)


def sorted_by_call(firms, vendor):
    return [key for name, key in firms.vendors.calls if name == vendor]


def test_a_replay_calls_the_vendor_that_was_down(firms, service):
    firms.declare(DOWN)
    known = {("a", key): {"text": f"A {key}"} for key in KEYS}
    firms.vendors.answers = known | {("b", key): {"text": f"B {key}"} for key in KEYS}
    service.answer = falls_silent(firms, "a", 12)
    firms.write_input({"key": KEYS})
    assert firms.run() == 0
    assert {row["firm_vendor"] for row in firms.rows()} == {"a", "b"}
    assert firms.record().dead_letters == 12
    firms.vendors.answers |= known
    firms.vendors.calls.clear()
    service.answer = firms.vendors._answer
    assert firms.run(command="replay") == 0
    assert len(firms.vendors.asked("a")) == 12
    assert firms.vendors.asked("b") == []
    assert {row["firm_vendor"] for row in firms.rows()} == {"a"}


@pytest.mark.parametrize(
    "undeclared",
    [
        lambda text: text.replace('"timeout", "outage"', '"timeout", "error"'),
        lambda text: text.replace("of=[a, b]", "of=[b, a]"),  # the last one has nobody after it
    ],
    ids=["not declared", "the last vendor"],
)
def test_an_outage_stops_the_run_where_nothing_else_is_declared(firms, service, undeclared):
    firms.declare(undeclared(DOWN))
    firms.vendors.answers = {("c", "x"): {"score": 1}}
    service.answer = falls_silent(firms, "a", 5)
    firms.write_input({"key": KEYS})
    assert firms.run() != 0
    if "of=[b, a]" not in undeclared(DOWN):
        assert firms.vendors.asked("b") == []
    assert not run_records.load("firms", DAY)


def test_throttling_is_no_outage(firms, service):
    firms.declare(DOWN)
    service.answer = falls_silent(firms, "a", 5, 429)
    firms.write_input({"key": KEYS})
    assert firms.run() != 0
    assert firms.vendors.asked("b") == []


def test_a_capped_run_stops_at_an_outage(firms, service):
    firms.declare(DOWN)
    service.answer = falls_silent(firms, "a", 5)
    firms.write_input({"key": KEYS})
    assert firms.run("--max-calls", "100") != 0
    assert firms.vendors.asked("b") == []


def test_a_vendor_that_refuses_connections_is_passed_over(firms, monkeypatch):
    monkeypatch.setenv("DEAD_URL", "http://127.0.0.1:9")
    firms.declare(
        DOWN.replace('Env("VENDOR_URL")', 'Env("DEAD_URL" if name == "a" else "VENDOR_URL")')
    )
    firms.vendors.answers = {("b", key): {"text": f"B {key}"} for key in KEYS}
    firms.write_input({"key": KEYS})
    assert firms.run() == 0
    assert {row["firm_vendor"] for row in firms.rows()} == {"b"}
