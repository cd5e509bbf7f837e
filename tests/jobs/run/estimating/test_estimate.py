"""What days would ask, and why: counted on a real input and a real ledger, while the service hears
nothing.
"""

import dataclasses
import datetime as dt
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.commands.planning.plan import plan
from jobs.errors import DeclarationError
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.declared_folder import request_fingerprint
from jobs.ledger.keys import key_text
from jobs.ledger.store import LedgerFolder
from jobs.ledger.stored_request import write_request
from jobs.run.day import run_day
from jobs.run.estimating.text import estimate_text
from tidegate import Cache, Enrichment, HttpLookup, Input, Output, Pages, Price, Service, jobs

pytestmark = pytest.mark.spark
DAYS = ["2026-11-01", "2026-11-02"]
SHARED = Cache()


@pytest.fixture
def folder(tmp_path, monkeypatch, spark):
    """Two days of 100 rows: keys 0 to 49 on the first, 25 to 74 on the second, each in two rows."""
    monkeypatch.chdir(tmp_path)
    for number, day in enumerate(DAYS):
        raw = tmp_path / "raw" / f"date={day}"
        raw.mkdir(parents=True)
        pq.write_table(
            pa.table({"k": pa.array([25 * number + n // 2 for n in range(100)])}),
            raw / "part-0.parquet",
        )
    return tmp_path


def declare(
    service, *, request="GET /score/{k}", prices=(), version=1, cache=SHARED, at_once=10, **fields
):
    asked = Service(name="s", url=service.url, max_concurrency=at_once, prices=prices)
    lookup = HttpLookup(
        name="score", service=asked, request=request, keys={"k": "k"}, returns="temp_c DOUBLE",
        timeout=5.0, version=version, cache=cache,
    )  # fmt: skip
    written = Output(path="published")
    return Enrichment(
        name="scored", input=Input(path="raw"), lookups=[lookup], output=written, **fields
    )


def store(enrichment, keys, *, outcome="ok", days_ago=0.0):
    (lookup,) = enrichment.lookups
    folder = LedgerFolder("data/ledger", lookup.name, request_fingerprint(lookup))
    write_request(folder, lookup)
    at = int((time.time() - days_ago * 86_400) * 1e6)
    response = b'{"temp_c":1.0}' if outcome == "ok" else None
    answers = [StoredAnswer(key_text((key,)), outcome, response, at, "earlier") for key in keys]
    folder.write_part("earlier", f"0-0-{outcome}-{days_ago}", answers)


def test_plan_counts_each_key_once_over_all_days_with_the_reason_of_its_call(folder, service):
    store(declare(service, version=1), range(5, 15))
    now = declare(
        service, version=2, prices=[Price("0.0040 USD"), Price("0.0046 USD", since="2100-01-01")]
    )
    store(now, range(5), days_ago=3.0)
    store(now, range(30, 40), outcome="miss", days_ago=2.0)
    (lookup,) = (estimate := plan(now, DAYS)).lookups
    assert (estimate.rows, lookup.rows, lookup.keys) == (200, 200, 75)
    assert (lookup.in_ledger, lookup.asked) == (5, 70)
    assert lookup.oldest_days == pytest.approx(3.0, abs=0.01)
    assert dict(lookup.because) == {"version 1 -> 2": 10, "ttl run out": 10, "no answer stored": 50}
    assert (lookup.cost, lookup.price) == ("0.2800", "0.0040 USD per item")
    assert lookup.later_price == "0.0046 USD per item from 2100-01-01"
    assert lookup.seconds is None
    message = estimate_text(estimate)
    assert (
        "asked anew       70   because: ttl run out 10, version 1 -> 2 10, no answer stored 50"
        in message
    )
    assert (
        "cost               0.2800 USD at 0.0040 USD per item; 0.0046 USD per item from 2100-01-01"
        in message
    )
    assert "unknown: no earlier run measured a call" in message
    assert service.log == []
    assert not (folder / "data/runs").exists()


@pytest.mark.parametrize(
    ("declared", "calls", "because"),
    [
        pytest.param({}, 75 - 5, "", marks=pytest.mark.proof),
        (
            {"cache": None},
            150 - 10,
            "cache=None: every row is called for",
        ),  # the second day finds the keys of the first
        pytest.param(
            {"ledger": None}, 100, "no ledger: every day asks its keys", marks=pytest.mark.proof
        ),
        pytest.param(
            {"ledger": None, "cache": None},
            200,
            "cache=None: every row is called for",
            marks=pytest.mark.proof,
        ),
    ],
)
def test_plan_counts_the_calls_that_the_days_make(folder, service, declared, calls, because):
    enrichment = declare(service, prices=[Price("1 USD")], **declared)
    if enrichment.ledger is not None:
        store(enrichment, range(5))
    (lookup,) = (estimate := plan(enrichment, DAYS)).lookups
    assert (lookup.keys, lookup.calls, lookup.requests, lookup.calls_because) == (
        75,
        calls,
        calls,
        because,
    )
    assert lookup.cost == str(calls)
    assert ("    calls            " in estimate_text(estimate)) == bool(because)
    for day in DAYS:
        run_day(enrichment, day, f"run-{day}")
    assert len(service.log) == calls


def test_plan_computes_the_time_from_the_declared_concurrency(folder, service):
    run_day(declare(service), DAYS[0], "run")
    seconds = [
        plan(declare(service, at_once=number), DAYS[1:]).lookups[0].seconds for number in (10, 5)
    ]
    assert seconds[1] == pytest.approx(2 * seconds[0])


def test_plan_reports_a_price_that_begins_later_and_an_answer_from_the_future(folder, service):
    later = declare(service, prices=[Price("0.0046 USD", since="2100-01-01")])
    store(later, [0], days_ago=-0.01)
    message = " ".join(estimate_text(plan(later, DAYS[:1])).split())
    assert "in the ledger 1 oldest answer 0 s old" in message
    assert "cost 0 as no price is in force today; 0.0046 USD per item from 2100" in message
    paged = dataclasses.replace(later.lookups[0], pages=Pages(next="$.next", max_pages=9))
    estimate = plan(dataclasses.replace(later, lookups=[paged]), DAYS[:1])
    assert "  requests           at least 50\n" in estimate_text(estimate)


def test_the_maximum_cost_of_jobs_counts_their_items_together(folder, service):
    enrichment = declare(service, prices=[Price("1 USD", per="request")])
    scored = enrichment.lookups[0]

    @jobs(
        service=dataclasses.replace(scored.service, name="jobs"), keys={"t": "score_status"},
        returns="x INT", recovery="token", max_items=1_000, give_up=dt.timedelta(hours=1),
    )  # fmt: skip
    class Reviewed:
        async def submit(self, items, token, http): ...
        async def state(self, job, http): ...
        async def results(self, job, http):
            yield

    chained = dataclasses.replace(enrichment, lookups=[scored, Reviewed])
    reviewed = plan(chained, DAYS[:1]).lookups[1]
    assert (reviewed.unknown, reviewed.cost_at_most) == (100, "1")


def test_plan_names_a_changed_request_and_a_changed_price_adds_no_call(folder, service):
    store(declare(service), range(50))
    assert plan(declare(service, prices=[Price("9 USD")]), DAYS[:1]).lookups[0].asked == 0
    (lookup,) = plan(declare(service, request="GET /v2/score/{k}"), DAYS[:1]).lookups
    ((reason, keys),) = lookup.because
    assert keys == 50
    assert "/score/{k} -> " in reason
    assert "/v2/score/{k}" in reason


def test_plan_names_a_day_without_input_and_refuses_a_single_such_day(folder, service):
    estimate = plan(declare(service), [*DAYS, "2026-11-03"])
    assert estimate.without_input == ("2026-11-03",)
    with pytest.raises(DeclarationError, match="there is no raw/date=2026-11-03"):
        plan(declare(service), ["2026-11-03"])


@pytest.mark.parametrize(
    ("every", "names", "said"),
    [("hour", ["2026-10-25T00Z", "2026-10-25T01Z"], "2 hours"), (["eu"], ["eu"], "1 partition")],
)
def test_plan_names_hours_and_partitions_as_such(folder, service, every, names, said):
    for name in names:
        Path("raw", f"part={name}").mkdir()
        pq.write_table(pa.table({"k": [1]}), f"raw/part={name}/a.parquet")
    asked = dataclasses.replace(
        declare(service), input=Input(path="raw", partition="part", every=every)
    )
    assert f"   {said}, 0 published with" in estimate_text(plan(asked, names))


def test_plan_reports_a_day_with_incompatible_files(folder, service):
    pq.write_table(pa.table({"k": ["a"]}), f"raw/date={DAYS[0]}/other.parquet")
    with pytest.raises(DeclarationError, match=r"'k' is string in .*other\.parquet, but int64 in"):
        plan(declare(service), DAYS)


@pytest.mark.parametrize(
    ("added", "why"),
    [(pa.nulls(1), "'more' has no type in "), (pa.array(["2026-11-01"]), "hold a column 'date'")],
    ids=["untyped", "partition"],
)
def test_plan_refuses_a_day_whose_columns_a_run_refuses(folder, service, added, why):
    name = "date" if "date" in why else "more"
    pq.write_table(pa.table({"k": [1], name: added}), f"raw/date={DAYS[0]}/part-0.parquet")
    for refuses in (
        lambda: plan(declare(service), DAYS),
        lambda: run_day(declare(service), DAYS[0], "a"),
    ):
        with pytest.raises(DeclarationError, match=why):
            refuses()
    assert service.log == []
