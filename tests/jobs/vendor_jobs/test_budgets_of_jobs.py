"""Budgets over runs count jobs: at their most while they are open, then what the vendor billed."""

import asyncio
from decimal import Decimal

import pytest

from jobs.commands.vendor_jobs import forget_job
from jobs.declare.limits.budgets import PARTS
from jobs.limits.lease_book import JOB
from jobs.limits.store_url import LIMITS_URL, limits_url, open_store
from jobs.run.keys.vendor_jobs.job_budgets import JobBudgets
from tests.jobs.vendor_jobs.test_days_by_jobs import DAY, NEXT, TEXTS, WAITING
from tests.jobs.vendor_jobs.test_killed_jobs import run_killed_at
from tests.support.killed_job_run import POINTS
from tests.support.vendor import PRICE
from tidegate.__main__ import main

STOPPED, WRONG = 3, 2
TEN_ITEMS = f'[Budget("{10 * PRICE} USD", per="month")]'
ALL_ITEMS = f'[Budget("{25 * PRICE} USD", per="month")]'


@pytest.fixture(autouse=True)
def _limits(tmp_path, monkeypatch):
    monkeypatch.setenv(LIMITS_URL, f"file://{tmp_path}/limits.sqlite")


def spent():
    """What the budgets count, in USD; and the jobs that they still hold money for."""

    async def look():
        store = open_store(limits_url())
        try:
            books, _ = await store.books()
        finally:
            await store.close()
        return books

    (book,) = asyncio.run(look()).values()
    amounts = {book.held(name) for name in book._cooling}
    return Decimal(max(amounts)) / PARTS, [
        owner for owner in book.unsettled if owner.startswith(JOB)
    ]


@pytest.mark.parametrize(("whose", "of"), [("budget", "vendor"), ("own_budget", "reviews")])
def test_a_budget_bounds_the_items_of_jobs(reviews, capsys, whose, of):
    reviews.declare(**{whose: TEN_ITEMS})
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WAITING
    assert sum(reviews.vendor.submits.values()) == 10
    assert "allows no more now" in capsys.readouterr().out
    assert spent()[0] == 10 * PRICE
    while (status := reviews.run(DAY)) == WAITING:
        continue
    assert status == STOPPED
    subject = f"because the budget of {of}, {10 * PRICE} USD per month, allows no more; run the day"
    assert subject in capsys.readouterr().out
    assert reviews.vendor.invoice == 10 * PRICE == spent()[0]
    reviews.declare()
    assert reviews.run_until_over(DAY) == 0
    assert set(reviews.vendor.submits.values()) == {1}


def test_the_unbilled_part_of_a_job_returns_to_the_budget(reviews):
    reviews.declare(budget=ALL_ITEMS, retries=0)
    reviews.vendor.fails.update(dict.fromkeys(TEXTS[:8], -1))
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WAITING
    assert spent()[0] == 25 * PRICE
    assert reviews.run_until_over(DAY) == 0
    assert spent() == (reviews.vendor.invoice, []) == (17 * PRICE, [])
    reviews.write_input(NEXT, [f"other {number}" for number in range(8)])
    assert reviews.run_until_over(NEXT) == 0
    assert spent()[0] == reviews.vendor.invoice == 25 * PRICE


def test_a_job_that_ended_while_the_budgets_had_no_store_is_settled_by_the_next_run(
    reviews, monkeypatch
):
    reviews.declare(budget=ALL_ITEMS, retries=0)
    reviews.vendor.fails.update(dict.fromkeys(TEXTS[:8], -1))
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WAITING
    kept = limits_url()
    monkeypatch.setenv(LIMITS_URL, "file:///dev/null/limits.sqlite")
    while any(job.is_open for job in reviews.files.jobs()):
        assert reviews.run(DAY) != 0
    monkeypatch.setenv(LIMITS_URL, kept)
    assert spent()[0] == 25 * PRICE
    assert reviews.run_until_over(DAY) == 0
    assert spent() == (reviews.vendor.invoice, []) == (17 * PRICE, [])


def test_a_job_forgotten_by_a_person_just_before_a_run_settles_it_counts_once(reviews, monkeypatch):
    reviews.declare("token", budget=f'[Budget("{50 * PRICE} USD", per="month")]')
    reviews.vendor.lose = {1}
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WAITING
    (lost,) = [job.token for job in reviews.files.jobs() if not job.id]
    spend = JobBudgets.spend

    async def spend_after_forget(budgets, token, intent):
        if token == lost and reviews.files.job(lost).is_open:
            await asyncio.to_thread(forget_job, "declared", lost)
        return await spend(budgets, token, intent)

    monkeypatch.setattr(JobBudgets, "spend", spend_after_forget)
    assert reviews.run_until_over(DAY) == 0
    assert reviews.vendor.log.count(("POST", "/jobs")) == 4  # its own, and of 25 keys again
    assert spent() == (reviews.bill, [])


@pytest.mark.parametrize("recovery", ["list", "token"])
def test_a_job_whose_submission_was_lost_is_paid_once(reviews, recovery):
    reviews.declare(recovery, budget=ALL_ITEMS)
    reviews.vendor.lose = {1}
    reviews.write_input(DAY, TEXTS)
    assert reviews.run_until_over(DAY) == 0
    assert spent() == (reviews.vendor.invoice, []) == (25 * PRICE, [])


def test_a_refused_job_costs_a_budget_nothing(reviews):
    reviews.declare(budget=ALL_ITEMS)
    reviews.vendor.refuse = 429
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WAITING
    assert spent() == (0, [])


@pytest.mark.parametrize("whose", ["budget", "own_budget"])
def test_a_budget_of_jobs_with_the_most_of_a_call_is_refused(reviews, capsys, whose):
    reviews.declare(**{whose: '[Budget("1 USD", per="month", at_most="0.01 USD")]'})
    assert main(["check", "--package", "declared"]) == WRONG
    said = capsys.readouterr()
    assert "at_most is '0.01 USD', the most that a call costs, and lookup" in said.out + said.err
    assert reviews.run(DAY) == WRONG


@pytest.mark.process
@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=[] if point == "results stored" else pytest.mark.proof)
        for point in POINTS
    ],
)
def test_a_killed_run_spends_no_budget_twice(reviews, point):
    reviews.vendor.fails["text 3"] = -1
    run_killed_at(reviews, point, "list", budget=ALL_ITEMS)
    assert spent() == (reviews.vendor.invoice, []) == (24 * PRICE, [])
    assert reviews.bill == reviews.vendor.invoice
