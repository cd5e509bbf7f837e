"""What runs hold of a limit never exceeds it, and is divided fairly."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.limits.fair_shares import fair_shares
from jobs.limits.lease_book import (
    CLOSED,
    JOB,
    OPEN,
    PROBE,
    UNSETTLED_KEPT,
    Claim,
    LeaseBook,
    Limit,
    Share,
)
from jobs.limits.lease_holder import LeaseHolder

CALLS = Limit(10)
TTL = 5.0


def beat(book, owner, keeps, wants, *, now, limit=CALLS, name="calls"):
    return book.heartbeat(owner, {name: Claim(limit, keeps, wants)}, now=now, ttl=TTL).shares[name]


@given(total=st.integers(0, 50), wants=st.lists(st.integers(0, 30), min_size=1, max_size=12))
def test_shares_are_max_min_fair(total, wants):
    given_shares = fair_shares(total, wants)
    assert sum(given_shares) == min(total, sum(wants))
    for share, want in zip(given_shares, wants, strict=True):
        assert 0 <= share <= want
        if share < want:  # nobody has more than one above somebody who wants more
            assert max(given_shares) <= share + 1


def test_a_second_run_gets_half_after_the_first_run_has_returned_it():
    book = LeaseBook()
    assert beat(book, "a", 0, 10, now=0.0) == Share(10, 10)
    assert beat(book, "b", 0, 10, now=0.1) == Share(0, 5)
    assert beat(book, "a", 10, 10, now=0.2) == Share(10, 5), (
        "calls under way: it keeps all, and hears its target"
    )
    assert beat(book, "a", 7, 10, now=0.3) == Share(7, 5)
    assert beat(book, "b", 0, 10, now=0.4) == Share(3, 5)
    assert beat(book, "a", 5, 10, now=0.5) == Share(5, 5)
    assert beat(book, "b", 3, 10, now=0.6) == Share(5, 5)


def test_a_share_that_a_run_cannot_use_goes_to_other_runs():
    book = LeaseBook()
    beat(book, "a", 0, 2, now=0.0)
    assert beat(book, "b", 0, 10, now=0.0) == Share(8, 8)


def test_the_share_of_a_silent_run_is_free_at_the_end_of_its_lease_and_not_before():
    book = LeaseBook()
    beat(book, "a", 0, 10, now=0.0)
    assert beat(book, "b", 0, 10, now=4.9).has == 0
    assert beat(book, "b", 0, 10, now=5.0) == Share(10, 10)
    assert beat(book, "a", 10, 10, now=5.1) == Share(0, 5), (
        "it comes back: what it held is another's"
    )


def test_the_used_rate_of_a_dead_run_stays_reserved_until_its_window_has_passed():
    book, rate = LeaseBook(), Limit(10, window=60.0)
    beat(book, "a", 0, 10, now=0.0, limit=rate)
    assert beat(book, "b", 0, 10, now=5.0, limit=rate).has == 0
    assert beat(book, "b", 0, 10, now=9.0, limit=rate).has == 0
    for second in range(13, 65, 4):
        assert beat(book, "b", 0, 10, now=float(second), limit=rate).has == 0
    assert beat(book, "b", 0, 10, now=65.0, limit=rate).has == 10


def test_the_used_rate_of_each_past_run_is_free_after_its_window():
    book, rate = LeaseBook(), Limit(600, window=60.0)
    for second in range(240):
        assert beat(book, f"run-{second}", 0, 8, now=float(second), limit=rate).has == 8
        book.leave(f"run-{second}", now=second + 0.5, spent={"calls": 8})


def test_the_strictest_declared_limit_applies_to_all_present_runs():
    book = LeaseBook()
    beat(book, "a", 0, 10, now=0.0)
    assert beat(book, "b", 0, 10, now=0.0, limit=Limit(4)) == Share(0, 2)
    assert beat(book, "a", 10, 10, now=0.1).target == 2


def test_a_book_survives_the_conversion_to_json_and_back():
    book = LeaseBook()
    beat(book, "a", 0, 10, now=0.0, limit=Limit(10, window=60.0))
    book.expire(6.0)
    beat(book, "b", 0, 3, now=7.0)
    book.close_gate(5.0, "429", now=7.0)
    again = LeaseBook(json.loads(json.dumps(book.state())))
    assert again.state() == book.state()
    assert beat(again, "b", 3, 3, now=8.0) == beat(book, "b", 3, 3, now=8.0)


STEP = st.tuples(
    st.sampled_from("abcd"), st.integers(0, 12), st.integers(0, 12),
    st.sampled_from([0.0, 0.1, 1.0, 4.0, 6.0]),
    st.sampled_from(["beat", "beat", "beat", "answer lost", "not reached", "leave"]),
)  # fmt: skip


@pytest.mark.parametrize("limit", [Limit(10), Limit(10, window=3.0)])
@given(steps=st.lists(STEP, max_size=40))
def test_owners_never_use_more_than_the_limit_whatever_messages_are_lost(limit, steps):
    book, now = LeaseBook(), 100.0
    holders = {}
    for owner, in_use, wants, pause, what in steps:
        now += pause
        holder = holders.setdefault(owner, LeaseHolder({"calls": limit}))
        if what == "leave":
            book.leave(owner, now=now)
            holders.pop(owner)
            continue
        claims = holder.ask({"calls": min(in_use, holder.may_use("calls", now))}, {"calls": wants})
        if what != "not reached":
            answer = book.heartbeat(owner, claims, now=now + 0.01, ttl=TTL)
            if what == "beat":
                holder.take(answer, asked_at=now)
        assert (
            sum(other.shares["calls"].has for other in holders.values() if now < other.until)
            <= limit.amount
        )
        assert book.held("calls") <= limit.amount


MONEY = Limit(100, math.inf)
SPENDING = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from(["beat", "beat", "spend", "spend", "pause", "settle", "leave"]),
    st.integers(0, 12),
)  # fmt: skip


@given(steps=st.lists(SPENDING, max_size=40))
def test_a_budget_counts_at_least_the_spent_money_and_exactly_that_once_settled(steps):
    book, now = LeaseBook(), 100.0
    spent, has, until, gone = (
        dict.fromkeys("abc", 0),
        dict.fromkeys("abc", 0),
        dict.fromkeys("abc", 0.0),
        set(),
    )
    for owner, what, amount in steps:
        if owner in gone:
            continue
        if what == "beat":  # also of one that was stopped for longer than its lease, and goes on
            claim = Claim(MONEY, min(has[owner], spent[owner] + amount), spent[owner] + 2 * amount)
            has[owner] = book.heartbeat(owner, {"m": claim}, now=now, ttl=TTL).shares["m"].has
            until[owner] = now + TTL
        elif what == "spend" and now < until[owner]:
            spent[owner] = max(spent[owner], min(has[owner], spent[owner] + amount))
        elif what == "pause":
            now += amount
        elif what == "settle" and owner in book.unsettled:
            book.settle(owner, {"m": spent[owner]})
            gone.add(owner)  # its bill is known because it is dead
        elif what == "leave":
            book.leave(owner, now=now, spent={"m": spent[owner]})
            gone.add(owner)
        book = LeaseBook(json.loads(json.dumps(book.state())))
        assert sum(spent.values()) <= book.held("m") <= MONEY.amount
    book.expire(now + TTL)
    for owner in [*book.unsettled]:
        book.settle(owner, {"m": spent[owner]})
    assert book.held("m") == sum(spent.values())


def test_an_owner_that_returns_with_some_of_its_budgets_settles_the_others_too():
    book, claim = LeaseBook(), Claim(MONEY, 10, 10)
    book.heartbeat("a", {"day": claim, "month": claim}, now=0.0, ttl=TTL)
    book.heartbeat("a", {"day": claim}, now=2 * TTL, ttl=TTL)
    assert (book.held("day"), book.held("month")) == (10, 10)
    book.leave("a", now=2 * TTL, spent={"day": 3, "month": 3})
    assert (book.held("day"), book.held("month")) == (3, 3)


def test_a_book_remembers_a_bounded_number_of_owners_to_be_settled():
    book = LeaseBook()
    for number in range(3 * UNSETTLED_KEPT):
        beat(book, f"run {number}", 0, 1, now=10.0 * number, limit=Limit(1000, math.inf))
    book.expire(1e9)
    assert [*book.unsettled] == [
        f"run {number}" for number in range(2 * UNSETTLED_KEPT, 3 * UNSETTLED_KEPT)
    ]
    assert book.held("calls") == 3 * UNSETTLED_KEPT


def gate(book, owner, *, now, wants=10):
    answer = book.heartbeat(owner, {"calls": Claim(CALLS, 10, wants)}, now=now, ttl=TTL)
    return answer.gate, round(answer.closed_for, 3)


def test_a_vendor_job_counts_at_its_maximum_until_it_is_settled_also_after_a_restart():
    book = LeaseBook()
    amounts = {"day": 10, "month": 100}

    def spend(job, amount):
        return book.spend(f"{JOB}{job}", amount, amounts, now=0.0)

    def held():
        return book.held("day"), book.held("month")

    assert [spend("1", 6), spend("1", 6), held()] == ["", "", (6, 6)]
    assert [spend("2", 5), held()] == ["day", (6, 6)]
    assert [spend("2", 4), held()] == ["", (10, 10)]
    book = LeaseBook(json.loads(json.dumps(book.state())))
    book.restart()
    book.settle(f"{JOB}1", {"day": 1, "month": 1})
    assert held() == (5, 5)
    book.settle(f"{JOB}1", {"day": 0, "month": 0})
    assert [spend("3", 5), held()] == ["", (10, 10)]


def test_after_a_pause_one_run_probes_and_its_success_opens_the_gate_for_all_runs():
    book = LeaseBook()
    assert gate(book, "a", now=0.0, wants=5) == (OPEN, 0.0)
    gate(book, "b", now=0.0, wants=5)
    book.close_gate(4.0, "429", now=0.0)
    assert gate(book, "a", now=1.0) == gate(book, "b", now=1.0) == (CLOSED, 3.0)
    assert gate(book, "b", now=4.0) == (PROBE, 0.0)
    assert gate(book, "a", now=4.5) == (CLOSED, 4.5)
    assert not book.open_gate("a"), "it was not asked to probe"
    assert book.open_gate("b")
    assert gate(book, "a", now=5.0) == (OPEN, 0.0)


def test_a_failed_probe_closes_the_gate_again_and_a_dead_probe_is_made_by_another_run():
    book = LeaseBook()
    gate(book, "a", now=0.0, wants=5)
    gate(book, "b", now=0.0, wants=5)
    book.close_gate(1.0, "429", now=0.0)
    assert gate(book, "a", now=1.0)[0] == PROBE
    book.close_gate(2.0, "429 again", now=1.5)
    assert gate(book, "b", now=2.0) == (CLOSED, 1.5)
    assert gate(book, "a", now=3.5)[0] == PROBE
    assert gate(book, "b", now=5.0)[0] == CLOSED
    assert gate(book, "b", now=8.6)[0] == PROBE, (
        "nothing was heard of the first one for the time to live"
    )


def test_a_longer_pause_is_not_shortened_and_a_run_without_calls_does_not_probe():
    book = LeaseBook()
    gate(book, "a", now=0.0, wants=5)
    gate(book, "idle", now=0.0, wants=0)
    book.close_gate(3.0, "429", now=0.0)
    book.close_gate(1.0, "429", now=0.0)
    assert gate(book, "a", now=2.0) == (CLOSED, 1.0)
    assert gate(book, "idle", now=3.0, wants=0)[0] == CLOSED
    assert gate(book, "a", now=3.0)[0] == PROBE


def test_a_run_without_money_for_a_call_does_not_probe():
    book, money = LeaseBook(), Limit(26, math.inf)

    def ask(owner, now):
        claims = {"calls": Claim(CALLS, 1, 1), "m": Claim(money, 26, 36, least=18)}
        return book.heartbeat(owner, claims, now=now, ttl=TTL)

    assert ask("rich", 0.0).shares["m"].has == 26
    assert ask("poor", 0.0).shares["m"].has == 0
    book.close_gate(1.0, "429", now=0.0)
    assert ask("poor", 1.0).gate == CLOSED
    assert ask("rich", 1.0).gate == PROBE
