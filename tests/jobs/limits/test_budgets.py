"""Budgets: all runs together spend no more than what was declared, and nearly all of it; then each
stops cleanly.
"""

import asyncio
import dataclasses
import datetime as dt
import json
import math
import random
from contextlib import closing, suppress
from decimal import Decimal

import pytest
from aiohttp import web

from jobs.clients.client import CallFailed
from jobs.errors import BudgetExhausted, DeclarationError
from jobs.ledger.store import LedgerFolder
from jobs.limits.lease_book import BUDGETS_KEPT, Claim, LeaseBook, Limit, Share
from jobs.limits.store_url import LIMITS_URL, open_store
from jobs.run.coordinator.driver_coordinator import DriverCoordinator
from jobs.run.coordinator.run_leases import (
    RunLeases,
    check_limits,
    leased_limits,
    refuse_small_budgets,
)
from tests.jobs.task.lookup.test_task_ledger import kept, with_ledger
from tests.jobs.task.test_runner import batches, in_time, plan
from tests.support.task_threads import TaskThreads
from tests.support.variants import first_of
from tidegate import (
    Batch,
    Budget,
    Enrichment,
    HttpLookup,
    Input,
    Output,
    Price,
    Retry,
    Service,
    lookup,
)
from tidegate.__main__ import main

TODAY = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)
SPENT = Limit(100, math.inf)


@pytest.fixture
def url(tmp_path, monkeypatch):
    url = f"file://{tmp_path}/limits.sqlite"
    monkeypatch.setenv(LIMITS_URL, url)
    return url


@pytest.fixture
def given_back_soon(monkeypatch):
    # a busy machine takes more than half a second to hear of it
    monkeypatch.setattr("jobs.task.lease.window_limits.GIVEN_BACK_WITHIN", 2.0)


# -- the book
# --------------------------------------------------------------------------------------------------


def beat(book, owner, keeps, wants, now=0.0):
    return book.heartbeat(owner, {"m": Claim(SPENT, keeps, wants)}, now=now, ttl=5.0).shares["m"]


def test_spent_money_stays_spent_and_reserved_money_becomes_free():
    book = LeaseBook()
    assert beat(book, "a", 0, 60) == Share(60, 60)
    beat(book, "a", 30, 30, now=1.0)
    book.leave("a", now=1.0)
    share = beat(book, "b", 0, 100, now=1e9)
    assert (share.has, share.free) == (70, 0)
    book.expire(2e9)
    assert book.held("m") == 100, "what a dead run held counts as spent"


def test_a_restart_of_the_machine_forgets_leases_and_pauses_and_keeps_spent_money():
    book = LeaseBook()
    book.heartbeat(
        "a", {"m": Claim(SPENT, 0, 40), "calls": Claim(Limit(9), 0, 9)}, now=1.0, ttl=5.0
    )
    book.close_gate(60.0, "429", now=1.0)
    again = LeaseBook(json.loads(json.dumps(book.state())))
    again.restart()
    assert (again.held("m"), again.held("calls"), again.pause(1.0)) == (40, 0, None)


def test_the_file_of_an_earlier_start_keeps_spent_money(url):
    async def main():
        before, after = open_store(url), open_store(url)
        before._boot = "earlier"
        await before.step("geo", lambda book, now: beat(book, "a", 0, 40, now))
        share = await after.step("geo", lambda book, now: beat(book, "b", 0, 100, now))
        await before.close()
        await after.close()
        return share.has

    assert asyncio.run(main()) == 60


def test_a_month_keeps_its_spent_money_after_many_daily_budgets():
    book = LeaseBook()
    for number in range(BUDGETS_KEPT + 1):
        claims = {name: Claim(Limit(9_999, math.inf), 1, 1) for name in ("month", f"day {number}")}
        book.heartbeat("a", claims, now=number, ttl=5.0)
        book.leave("a", now=number)
    again = LeaseBook(json.loads(json.dumps(book.state())))
    assert again.held("month") == BUDGETS_KEPT + 1


# -- runs
# --------------------------------------------------------------------------------------------------


class Run(TaskThreads):
    """One run in threads of its own: a driver, two tasks."""

    def __init__(self, url, declared, name, *, tasks=2, now=lambda: TODAY, budgets=()):
        self.leases = RunLeases(open_store(url), name)
        limits = leased_limits([declared], budgets, now=now)
        driver = DriverCoordinator("127.0.0.1", "127.0.0.1", lambda _: True)
        address = driver.register(keepers=self.leases.keepers(limits))
        super().__init__(
            dataclasses.replace(plan(declared, share=3), driver=address, limits=limits), tasks
        )

    def join(self):
        super().join()
        self.leases.close()


class Billing:
    """Bills each request that it hears; tokens: between 1 and so many of each."""

    def __init__(self, price, tokens=None):
        self.price, self.tokens, self.bill, self.draw = (
            Decimal(price),
            tokens,
            Decimal(0),
            random.Random(1),
        )

    async def __call__(self, request):
        many = 1 if self.tokens is None else self.draw.randint(1, self.tokens)
        self.bill += self.price * many
        await asyncio.sleep(self.draw.uniform(0.0, 0.02))
        return web.json_response({"first_x": 1, "tokens": many})


def priced(url, price, budget, **fields):
    service = Service(
        name="geo", url=url, max_concurrency=60, prices=Price(price, per="request"), budget=budget
    )
    usual = {"request": "GET /{k}", "timeout": 5.0}
    return HttpLookup(
        name="first", service=service, keys={"k": "k"}, returns="first_x BIGINT", **usual | fields
    )


def at_once(url, declared, count, rows):
    runs = [Run(url, declared, f"run {number}") for number in range(count)]
    for run in runs:
        run.start(lambda: batches(rows))
    in_time(lambda: [run.join() for run in runs])
    return runs


def test_ten_runs_at_once_spend_a_budget_and_no_more(url, service):
    service.answer = billing = Billing("0.10")
    runs = at_once(url, priced(service.url, "0.10 USD", [Budget("100.00 USD", per="day")]), 10, 300)
    print(f"the bill: {billing.bill}")
    assert Decimal("97.00") <= billing.bill <= Decimal("100.00")
    errors = [error for run in runs for error in run.errors]
    assert {type(error) for error in errors} == {BudgetExhausted}
    assert str(errors[0]).startswith(
        "the budget of geo, 100.00 USD per day, is used up: what was answered is kept"
    )


def test_a_budget_of_tokens_is_reserved_at_the_highest_price_and_settled_by_the_bill(url, service):
    service.answer = billing = Billing("0.001", tokens=50)

    async def ask(row, http):
        answer = await http.get(f"/{row.k}")
        http.bill(tokens=answer["tokens"])
        return {"first_x": 1}

    declared = lookup(
        name="first", keys={"k": "k"}, returns="first_x BIGINT", timeout=5.0,
        service=Service(
            name="model", url=service.url, max_concurrency=20,
            prices=Price("1 USD", per="1000 tokens"),
            budget=Budget("10 USD", per="month", at_most="0.05 USD"),
        ),
    )(ask)  # fmt: skip
    at_once(url, declared, 3, 200)
    print(f"the bill: {billing.bill}")
    assert Decimal("9.70") <= billing.bill <= Decimal(10)


@pytest.mark.usefixtures("given_back_soon")
def test_a_budget_is_not_used_up_while_a_pause_keeps_a_call_from_spending_it(url, service):
    came = []

    async def answer(request):
        came.append(request.path)
        if len(came) == 1:
            return web.json_response({}, status=429, headers={"Retry-After": "2"})
        return web.json_response({"tokens": 1})

    async def ask(row, http):
        http.bill(tokens=(await http.get(f"/{row.k}"))["tokens"])
        return {"first_x": 1}

    service.answer = answer
    declared = lookup(
        name="first", keys={"k": "k"}, returns="first_x BIGINT", timeout=5.0,
        service=Service(
            name="model", url=service.url, max_concurrency=20,
            prices=Price("1 USD", per="1000 tokens"),
            budget=Budget("0.07 USD", per="day", at_most="0.05 USD"),  # one call at a time
        ),
    )(ask)  # fmt: skip
    (run,) = at_once(url, declared, 1, 3)
    assert not run.errors
    assert len(came) == 7, "six rows and a refusal"


@pytest.mark.usefixtures("given_back_soon")
def test_a_budget_ends_a_run_of_batches_though_their_rows_wait_for_the_next_request(url, service):
    sizes = []

    async def answer(request):
        sizes.append(len(await request.json()))
        return web.json_response([{"first_x": 1}] * sizes[-1])

    service.answer = answer
    declared = priced(
        service.url, "0.10 USD", Budget("1.00 USD", per="day"), request="POST /", timeout=None,
        attempt_timeout=5.0, batch=Batch(max_items=5, max_wait=0.05, item="{k}"),
    )  # fmt: skip
    (run,) = at_once(url, declared, 1, 100)
    assert len(sizes) == 10
    assert {type(error) for error in run.errors} == {BudgetExhausted}
    assert str(run.errors[0]).startswith("the budget of geo, 1.00 USD per day, is used up")


@pytest.mark.usefixtures("given_back_soon")
def test_keys_of_a_batch_that_the_budget_left_unsent_do_not_count_as_called(url, service, tmp_path):

    async def answer(request):
        return web.json_response([{"first_x": 1}] * len(await request.json()))

    service.answer = answer
    declared = priced(
        service.url, "0.10 USD", Budget("0.50 USD", per="day"), request="POST /", idempotent=False,
        retry=Retry(retries=0), batch=Batch(max_items=5, max_wait=0.05, item="{k}"),
    )  # fmt: skip
    ledger = LedgerFolder(str(tmp_path / "ledger"), "first", "f" * 16)
    run = Run(url, declared, "a run", tasks=1)
    run.plan = with_ledger(run.plan, ledger)
    run.start(lambda: batches(100))
    in_time(run.join)
    assert {type(error) for error in run.errors} == {BudgetExhausted}
    stored = kept(ledger)
    answered = {answer.key for answer in stored if answer.outcome == "ok"}
    assert len(service.log) == 5
    assert {answer.key for answer in stored if answer.outcome == "asked"} == answered


@pytest.mark.usefixtures("given_back_soon")
def test_a_daily_budget_restarts_each_day_and_a_monthly_budget_does_not(url, service):
    service.answer = billing = Billing("1.00")
    declared = priced(
        service.url, "1 USD", [Budget("10 USD", per="day"), Budget("25 USD", per="month")]
    )
    bills = []
    for day in range(4):
        run = Run(
            url, declared, "a run", tasks=1, now=lambda day=day: TODAY + dt.timedelta(days=day)
        )
        run.start(lambda: batches(100))
        in_time(run.join)
        assert [type(error) for error in run.errors] == [BudgetExhausted]
        bills.append(billing.bill)
    assert bills == [10, 20, 25, 25]


@pytest.mark.usefixtures("given_back_soon")
def test_a_run_that_needs_less_than_the_budget_leaves_the_rest_to_others(url, service):
    service.answer = billing = Billing("1.00")
    declared = priced(service.url, "1 USD", [Budget("30 USD", per="day")])
    (first,) = at_once(url, declared, 1, 10)
    assert (sum(batch.num_rows for batch in first.found), first.errors) == (20, [])
    at_once(url, declared, 1, 100)
    assert billing.bill == 30


@pytest.fixture
def spent_budget(url, service, given_back_soon):
    """A budget of 6 USD that a run has spent."""
    service.answer = Billing("1.00")
    run = Run(url, priced(service.url, "1.50 USD", Budget("6 USD", per="day")), "a run", tasks=1)
    run.start(lambda: batches(100))
    in_time(run.join)


@pytest.mark.usefixtures("spent_budget")
def test_limits_shows_the_spent_part_of_a_budget_in_its_currency(capsys):
    assert main(["limits"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if "USD" in line]
    (line,) = [line[line.index("USD") :] for line in lines]
    assert line[:6] == ["USD", "on", "2026-11-25", "ended", "runs", "6.00"]


@pytest.mark.usefixtures("spent_budget")
def test_limits_with_json_shows_the_spent_part_of_a_budget(capsys):
    assert main(["limits", "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    holders = [holder for service in found["services"] for holder in service["holders"]]
    (spent,) = [holder for holder in holders if "USD" in holder["limit"]]
    assert (spent["run"], spent["expires_in"]) == ("ended runs", None)
    assert main(["limits"]) == 0
    assert " inf " not in capsys.readouterr().out


@pytest.mark.usefixtures("given_back_soon")
def test_a_budget_of_an_enrichment_counts_only_its_runs(url, service):
    service.answer = billing = Billing("1.00")
    declared = priced(service.url, "1 USD", Budget("25 USD", per="day"))
    for name, bill in (("one", 10), ("one", 10), ("two", 20), ("three", 25)):
        run = Run(url, declared, "a run", tasks=1, budgets=[(name, Budget("10 USD", per="day"))])
        run.start(lambda: batches(100))
        in_time(run.join)
        assert billing.bill == bill
    assert str(run.errors[0]).startswith("the budget of geo, 25 USD per day, is used up")


def test_a_budget_of_an_enrichment_needs_one_service_with_prices():
    def declared(*lookups):
        return Enrichment(
            name="e", input=Input(path="i", row_id=["k"]), output=Output(path="o"), lookups=lookups,
            budget=Budget("5 USD", per="day"),
        )  # fmt: skip

    geo = priced("http://a", "1 USD", ())
    assert declared(geo).budget == (Budget("5 USD", per="day"),)
    other = dataclasses.replace(
        geo,
        name="second",
        service=dataclasses.replace(geo.service, name="other"),
        returns="second_x BIGINT",
    )
    with pytest.raises(DeclarationError, match="budget: 2 services of the enrichment have prices"):
        declared(geo, other)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"budget": Budget("5 USD", per="day")}, "budget: the service has no price"),
        (
            {"budget": Budget("5 EUR", per="day"), "prices": Price("1 USD")},
            "'5 EUR' is not in the currency of its prices, USD; give it in",
        ),
        (
            {"budget": Budget("5 USD", per="day"), "prices": Price("1 USD", per="token")},
            "only an answer reports how many tokens a call cost; declare at_most",
        ),
        (
            {
                "budget": [Budget("5 USD", per="day"), Budget("6 USD", per="day")],
                "prices": Price("1 USD"),
            },
            "two are per day; keep only the smaller one",
        ),
        (
            {
                "budget": [
                    Budget("9 USD", per="day"),
                    Budget("5 USD", per="month"),
                    Budget("6 USD", per="month"),
                ],
                "prices": Price("1 USD"),
            },
            "two are per month",
        ),
    ],
)
def test_a_budget_without_a_matching_price_is_refused(fields, sentence):
    with pytest.raises(DeclarationError, match=sentence):
        Service(name="s", url="http://a", max_concurrency=1, **fields)


BATCH = {"request": "POST /", "batch": Batch(max_items=5, max_wait=0.05, item="{k}")}


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize(
    ("fields", "per", "sentence"),
    [
        ({}, "request", "0.049 USD per day, below the 0.05 USD that a call"),
        (BATCH, "request", "0.049 USD per day, below the 0.05 USD that a call"),
        (BATCH, "item", "0.20 USD per day, below the 0.25 USD that a full batch (max_items)"),
    ],
)
def test_check_refuses_a_budget_below_the_price_of_a_call(fields, per, sentence):
    amount = sentence.partition(" per")[0]
    declared = priced("http://a", "0.05 USD", Budget(amount, per="day"), **fields)
    service = dataclasses.replace(declared.service, prices=Price("0.05 USD", per=per))
    declared = dataclasses.replace(declared, service=service)
    with pytest.raises(BudgetExhausted) as refused:
        refuse_small_budgets([declared], ())
    assert str(refused.value) == f"the budget of geo, {sentence} may cost, pays for none. Raise it."
    refuse_small_budgets([priced("http://a", "0.049 USD", Budget("0.049 USD", per="day"))], ())


@pytest.mark.usefixtures("given_back_soon")
def test_a_run_without_calls_needs_no_budget(url, service, tmp_path):
    service.answer = Billing("0.10")
    ledger = LedgerFolder(str(tmp_path / "ledger"), "first", "f" * 16)
    errors = []
    for amount, rows in (("9 USD", 10), ("0.09 USD", 10), ("0.09 USD", 11)):
        declared = priced(service.url, "0.10 USD", Budget(amount, per="day"))
        run = Run(url, declared, "a run", tasks=1)
        run.plan = with_ledger(run.plan, ledger)
        run.start(lambda rows=rows: batches(rows))
        in_time(run.join)
        errors.append([str(error)[:95] for error in run.errors])
    assert errors == [
        [], [], ["the budget of geo, 0.09 USD per day, below the 0.1 USD that a call may cost, is used up: what w"],
    ]  # fmt: skip
    assert len(service.log) == 10


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"amount": "abc"}, "budget: amount is 'abc'; it must be an amount and a currency"),
        ({"amount": 100}, "budget: amount is 100; it must be an amount and a currency"),
        ({"amount": "0 USD"}, "budget: amount is '0 USD'; it must be over 0"),
        (
            {"amount": "100 USD", "at_most": "0.05 EUR"},
            "budget: at_most is '0.05 EUR'; it must be in the currency of the amount, USD",
        ),
    ],
)
def test_a_budget_with_a_wrong_amount_is_refused(fields, sentence):
    with pytest.raises(DeclarationError, match=sentence):
        Budget(**fields, per="day")


def test_a_budget_without_a_store_of_limits_is_refused_before_a_run(monkeypatch):
    monkeypatch.setenv(LIMITS_URL, "off")
    for timeout in (5.0, None):
        with pytest.raises(
            DeclarationError,
            match="a budget applies to its calls, which runs share in a store, but",
        ):
            check_limits(
                [priced("http://a", "1 USD", Budget("5 USD", per="day"), timeout=timeout)], ()
            )


@pytest.mark.usefixtures("given_back_soon")
def test_a_raised_budget_applies_at_once_and_a_lowered_budget_to_runs_that_declare_it(url, service):
    service.answer = billing = Billing("1.00")
    first = Run(url, priced(service.url, "1 USD", Budget("5 USD", per="day")), "killed", tasks=1)
    first.start(lambda: batches(100))
    in_time(lambda: TaskThreads.join(first))  # it never says that it has ended
    with closing(first.leases):
        for amount, bill in (("8 USD", 8), ("5 USD", 8), ("10 USD", 10)):
            run = Run(
                url, priced(service.url, "1 USD", Budget(amount, per="day")), "a run", tasks=1
            )
            run.start(lambda: batches(100))
            in_time(run.join)
            assert billing.bill == bill


@pytest.mark.parametrize("seed", first_of(range(3)))
def test_a_coroutine_that_billed_and_failed_is_settled_at_its_bill(url, service, seed):
    draw, spent = random.Random(seed), []

    async def answer(request):
        await asyncio.sleep(0.005)
        status = draw.choice([200, 200, 422])
        return web.json_response({"tokens": draw.randint(1, 50)}, status=status)

    async def ask(row, http):
        settled, billed, ending = (
            0,
            0,
            draw.choice(["answer", "raises", "raises after two", "raises before its bill"]),
        )
        try:
            for _ in range(2 if ending == "raises after two" else 1):
                settled = max(billed, 100)  # what is sent now may cost as much
                tokens = (await http.get(f"/{row.k}"))["tokens"]
                if ending == "raises before its bill":
                    raise ValueError(ending)
                http.bill(tokens=tokens)
                settled = billed = billed + tokens
            if ending != "answer":
                raise ValueError(ending)
        finally:
            spent.append(settled)
        return {"first_x": 1}

    service.answer = answer
    declared = lookup(
        name="first", keys={"k": "k"}, returns="first_x BIGINT", timeout=5.0,
        retry=Retry(retries=0), cache=None, service=Service(
            name="model", url=service.url, max_concurrency=20,
            prices=Price("1 USD", per="1000 tokens"),
            budget=Budget("1000 USD", per="day", at_most="0.10 USD"),
        ),
    )(ask)  # fmt: skip
    (run,) = at_once(url, declared, 1, 100)
    assert not run.errors
    assert len(spent) == 200
    (book,) = asyncio.run(open_store(url).books())[0].values()
    assert book.held("billionths of USD on 2026-11-25") == sum(spent) * 1_000_000


def test_a_coroutine_that_lost_a_request_is_settled_at_its_maximum(url, service):
    async def answer(request):
        if request.path == "/lost":
            request.transport.close()
        return web.json_response({})

    service.answer = answer

    async def ask(row, http):
        with suppress(CallFailed):
            await http.get("/lost")
        await http.get("/found")
        http.bill(tokens=10)
        return {"first_x": 1}

    declared = lookup(
        name="first", keys={"k": "k"}, returns="first_x BIGINT", timeout=5.0, cache=None,
        service=Service(
            name="model", url=service.url, max_concurrency=20,
            prices=Price("1 USD", per="1000 tokens"),
            budget=Budget("1000 USD", per="day", at_most="0.10 USD"),
        ),
    )(ask)  # fmt: skip
    (run,) = at_once(url, declared, 1, 3)
    assert not run.errors
    (book,) = asyncio.run(open_store(url).books())[0].values()
    assert book.held("billionths of USD on 2026-11-25") == 6 * 100_000_000


def test_a_plan_without_budget_and_rate_has_no_leased_limit(monkeypatch):
    monkeypatch.setenv(LIMITS_URL, "off")
    assert leased_limits([priced("http://a", "1 USD", ())]) == ()
