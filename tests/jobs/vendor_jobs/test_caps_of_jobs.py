"""Caps on the items that a command submits: what the vendor did not take uses up none."""

import pytest

from jobs.errors import BudgetExhausted
from jobs.ledger.plan import CallCap
from jobs.run.keys.vendor_jobs.item_limit import ItemLimit
from jobs.run.plan.caps import divide_cap
from jobs.run.plan.options import RunOptions
from tests.support.job_steps import settle

TEXTS = ["text 1", "text 2", "text 3", "text 4"]


def a_limit(lookup, tasks=1, **options):
    return ItemLimit.of(divide_cap(RunOptions(**options), [lookup], tasks))


def test_a_submission_that_the_vendor_did_not_accept_uses_no_cap(reviews):
    reviews.declare(max_items=2)
    limit = a_limit(reviews.lookup, max_calls=4)
    reviews.vendor.refuse = 429
    assert settle(reviews.lookup, "run-1", TEXTS, limit=limit).sentence
    assert limit.left == 4
    reviews.vendor.refuse = None
    settle(reviews.lookup, "run-2", TEXTS, limit=limit)
    assert reviews.vendor.submits == dict.fromkeys(TEXTS, 1)
    assert limit.left == 0


def test_a_job_in_doubt_of_a_killed_run_is_submitted_again_only_within_the_cap(reviews):
    reviews.declare("token", max_items=4)
    reviews.vendor.delays = 1  # the vendor does not take it
    settle(reviews.lookup, "run-1", TEXTS, limit=a_limit(reviews.lookup))
    waits = settle(reviews.lookup, "run-2", TEXTS, limit=a_limit(reviews.lookup, max_calls=3))
    assert "and max_calls 3 allows no further one of its 4 items." in waits.sentence
    assert not reviews.vendor.submits
    limit = a_limit(reviews.lookup, max_calls=4)
    settle(reviews.lookup, "run-3", TEXTS, limit=limit)
    assert reviews.vendor.submits == dict.fromkeys(TEXTS, 1)
    assert limit.left == 0


def test_a_submission_in_doubt_uses_the_cap(reviews):
    reviews.declare(max_items=2)
    limit = a_limit(reviews.lookup, max_calls=4)
    reviews.vendor.lose = {1}
    settle(reviews.lookup, "run-1", TEXTS, limit=limit)
    assert limit.left == 2


def test_the_rest_of_a_cap_submits_as_many_items_over_any_number_of_tasks():
    for tasks in range(1, 50):
        limit = ItemLimit.of(CallCap("max_calls 4", (1.0 / tasks,) * tasks, (1.0,)))
        assert limit.take(9, 0) == 1
        assert limit.left == pytest.approx(0)
        assert limit.left >= 0


def test_a_cap_that_allows_no_item_stops_the_day(reviews):
    limit = a_limit(reviews.lookup, max_calls=0)
    with pytest.raises(BudgetExhausted, match="1 key is not submitted, because max_calls 0"):
        settle(reviews.lookup, "run-1", TEXTS[:1], limit=limit)


@pytest.mark.parametrize(
    ("max_items", "cap", "items", "left"),
    [(4, 14, 4, 0), (2, 24, 4, 0), (2, 23, 3, 0), (2, 22, 2, 10)],
)
def test_a_price_per_job_counts_once_for_all_items_of_a_job(reviews, max_items, cap, items, left):
    prices = 'Price("10 USD", per="request"), Price("1 USD")'
    reviews.declare(max_items=max_items, prices=prices)
    limit = a_limit(reviews.lookup, max_cost=f"{cap} USD")
    settle(reviews.lookup, "run-1", TEXTS, limit=limit)
    assert reviews.vendor.submits.total() == items
    assert 11 * limit.left == pytest.approx(left, abs=1e-6)  # counted in items that are jobs
