"""Runs at once that need the same keys: one of them submits each key."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.job_steps import settle


def run_twice_at_once(reviews, seed):
    """Two runs begin at once; both continue until they do not wait."""
    dice = random.Random(seed)
    texts = [f"{seed} {number}" for number in range(dice.randint(5, 40))]
    own = [dice.sample(texts, dice.randint(1, len(texts))) for _ in range(2)]
    lookup = reviews.lookup
    begin = threading.Barrier(2)

    def run(number):
        begin.wait()
        for again in range(20):
            step = settle(
                lookup, f"{seed}-{number}-{again}", own[number], day=str(number),
                root=reviews.ledger,
            )  # fmt: skip
            if not step.waits.sentences:
                return step.answers
        raise AssertionError("it waits for ever")

    with ThreadPoolExecutor(2) as runs:
        found = [*runs.map(run, range(2))]
    for answers, wanted in zip(found, own, strict=True):
        assert sorted(answers["key"].to_pylist()) == sorted(f'["{text}"]' for text in wanted)
        assert set(answers["outcome"].to_pylist()) == {"ok"}


@pytest.mark.proof
def test_runs_at_once_on_an_object_store_submit_each_key_once(reviews, s3):
    reviews.ledger = f"{s3.bucket}/ledger"
    test_runs_at_once_submit_each_key_once(reviews, rounds=5)


@pytest.mark.parametrize("rounds", [1, pytest.param(100, marks=pytest.mark.proof)])
def test_runs_at_once_submit_each_key_once(reviews, rounds):
    reviews.declare(max_items=7, open_jobs=50)
    reviews.vendor.looks = 0
    for seed in range(rounds):
        run_twice_at_once(reviews, seed)
    assert set(reviews.vendor.submits.values()) == {1}
    assert reviews.bill == reviews.vendor.invoice
