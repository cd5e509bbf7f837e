"""Runs at once that need the same keys: one of them submits each key."""

import random
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812

from jobs.ledger.declared_folder import request_fingerprint
from jobs.ledger.plan import LedgerPlan
from jobs.run.keys.driver_keys import KeyRows
from jobs.run.keys.job_step import settle_by_jobs
from jobs.run.keys.key_texts import TASK
from jobs.run.keys.registration import registered
from jobs.run.keys.waits import WaitingDay, Waits
from jobs.schema.columns import SOURCE_FILE, SOURCE_ROW


def source_of(texts, lookup):
    """The keys of a day with these texts, as the driver has them."""
    schema = T.StructType([T.StructField("__key_0_0", T.StringType())])
    rows = {"__key_0_0": texts, TASK: pa.array([0] * len(texts), pa.int32())}
    rows |= {SOURCE_FILE: ["file"] * len(texts), SOURCE_ROW: range(len(texts))}
    names = ("__key_0_0",)
    keys = KeyRows(types.SimpleNamespace(schema=schema), names, pa.table(rows))
    return types.SimpleNamespace(names=names, lookup=lookup, distinct=keys.distinct)


def settle(lookup, run_id, texts, *, day):
    """The outcomes of a run of a day, and whether it waits."""
    plan = LedgerPlan(
        root=str(Path("data/ledger").resolve()), lookup=lookup.name,
        fingerprint=request_fingerprint(lookup), run_id=run_id, ttl=lookup.ttl, flush_rows=1,
        flush_seconds=1.0,
    )  # fmt: skip
    waits = Waits(WaitingDay("reviews", day))
    with registered([plan]):
        hits = settle_by_jobs(source_of(texts, lookup), lookup, plan, waits, seed=1, limit=None)
    return hits.answers, bool(waits.sentences)


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
            answers, waits = settle(
                lookup, f"{seed}-{number}-{again}", own[number], day=str(number)
            )
            if not waits:
                return answers
        raise AssertionError("it waits for ever")

    with ThreadPoolExecutor(2) as runs:
        found = [*runs.map(run, range(2))]
    for answers, wanted in zip(found, own, strict=True):
        assert sorted(answers["key"].to_pylist()) == sorted(f'["{text}"]' for text in wanted)
        assert set(answers["outcome"].to_pylist()) == {"ok"}


@pytest.mark.parametrize("rounds", [1, pytest.param(100, marks=pytest.mark.proof)])
def test_runs_at_once_submit_each_key_once(reviews, rounds):
    reviews.declare(max_items=7, open_jobs=50)
    reviews.vendor.looks = 0
    for seed in range(rounds):
        run_twice_at_once(reviews, seed)
    assert set(reviews.vendor.submits.values()) == {1}
    assert reviews.bill == reviews.vendor.invoice
