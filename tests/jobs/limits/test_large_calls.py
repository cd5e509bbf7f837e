"""Calls that reserve much of a rate: where an equal part is too small for one, some go first, and
nobody hangs.
"""

import json

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from jobs.limits.fair_shares import fair_shares, useful_shares
from jobs.limits.lease_book import Claim, LeaseBook, Limit
from jobs.limits.store_url import LIMITS_URL
from tests.jobs.limits.test_budgets import Run
from tests.jobs.task.test_runner import batches, in_time
from tidegate import Rate, Service, lookup

RATE = Limit(100, 1.0)


@given(
    total=st.integers(0, 300),
    wants=st.lists(st.integers(0, 200), max_size=8),
    least=st.integers(1, 100),
)
def test_a_share_is_large_enough_for_a_call_or_empty(total, wants, least):
    shares = useful_shares(total, wants, least)
    calling = [place for place, want in enumerate(wants) if want >= least]
    in_use = sum(want for want in wants if want < least)
    assert all(share <= want for share, want in zip(shares, wants, strict=True))
    if in_use <= total:
        assert sum(shares) <= total
    if calling and total - in_use >= least:
        assert any(shares[place] >= least for place in calling)
        assert not any(0 < shares[place] < least for place in calling)
    if least == 1:
        assert shares == fair_shares(total, wants)


def test_claims_that_came_first_are_served_first_and_others_afterwards():
    book = LeaseBook()

    def beat(owner, keeps, wants, now):
        nonlocal book
        book = LeaseBook(json.loads(json.dumps(book.state())))
        return book.heartbeat(owner, {"r": Claim(RATE, keeps, wants, 60)}, now=now, ttl=5.0).shares[
            "r"
        ]

    assert beat("a", 0, 120, 0.0).has == 100
    assert beat("b", 0, 120, 0.1).target == 0
    assert beat("a", 5, 5, 0.2).has == 5
    assert beat("b", 0, 120, 0.3).has == 95


@pytest.mark.parametrize("runs", [1, 2])
def test_tasks_and_runs_all_end_although_an_equal_share_is_less_than_a_call_reserves(
    runs, tmp_path, service, monkeypatch
):
    url = f"file://{tmp_path}/limits.sqlite"
    monkeypatch.setenv(LIMITS_URL, url)
    service.answer = lambda request: answered()

    async def answered():
        return web.json_response({"first_x": 1})

    async def ask(row, http):
        answer = await http.get(f"/{row.k}")
        http.bill(tokens=5)
        return answer

    rate = Rate(100, per="second", of="tokens", at_most=60)
    model = Service(name="model", url=service.url, max_concurrency=8, rate=rate)
    declared = lookup(
        name="first", service=model, keys={"k": "k"}, returns="first_x BIGINT", timeout=5.0
    )(ask)
    at_once = [Run(url, declared, f"run {number}") for number in range(runs)]
    for run in at_once:
        run.start(lambda: batches(2))
    in_time(lambda: [run.join() for run in at_once])
    assert [(sum(batch.num_rows for batch in run.found), run.errors) for run in at_once] == [
        (4, [])
    ] * runs
