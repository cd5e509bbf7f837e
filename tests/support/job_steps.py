"""Runs of a day's keys by jobs, as far as the driver takes them: without rows, by any clock."""

import types
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812

from jobs.ledger.declared_folder import request_fingerprint
from jobs.ledger.plan import LedgerPlan
from jobs.run.keys.driver_keys import KeyRows
from jobs.run.keys.key_texts import TASK
from jobs.run.keys.registration import registered
from jobs.run.keys.vendor_jobs.item_limit import ItemLimit
from jobs.run.keys.vendor_jobs.job_step import settle_by_jobs
from jobs.run.keys.vendor_jobs.waits import WaitingDay, Waits
from jobs.schema.columns import SOURCE_FILE, SOURCE_ROW
from jobs.storage.urls import is_url

DAY = "2013-01-10"


@dataclass
class Step:
    """What a run left: the outcomes of its keys, and what it waits for."""

    answers: pa.Table
    waits: Waits

    @property
    def sentence(self):
        return " ".join(self.waits.sentences)

    @property
    def outcomes(self):
        return Counter(self.answers["outcome"].to_pylist())

    @property
    def words(self):
        """The only response."""
        (response,) = set(self.answers["response"].to_pylist())
        return response


def keys_of(texts):
    """The keys of a day with these texts, as the driver has them."""
    schema = T.StructType([T.StructField("__key_0_0", T.StringType())])
    rows = {"__key_0_0": texts, TASK: pa.array([0] * len(texts), pa.int32())}
    rows |= {SOURCE_FILE: ["file"] * len(texts), SOURCE_ROW: range(len(texts))}
    return KeyRows(types.SimpleNamespace(schema=schema), ("__key_0_0",), pa.table(rows))


def settle(lookup, run_id, texts, *, day=DAY, root="data/ledger", **options):
    """A run of a day; its waiting ends once nothing is open."""
    plan = LedgerPlan(
        root=root if is_url(root) else str(Path(root).resolve()), lookup=lookup.name,
        fingerprint=request_fingerprint(lookup), run_id=run_id, ttl=lookup.ttl, flush_rows=1,
        flush_seconds=1.0,
    )  # fmt: skip
    waits = Waits(WaitingDay("reviews", day))
    with registered([plan]):
        given = {"limit": ItemLimit(), "place": 0, "budgets": ()} | options
        hits = settle_by_jobs(keys_of(texts), lookup, plan, waits, seed=1, **given)
    if not waits.sentences:
        with waits.ended():
            pass
    return Step(hits.answers, waits)


@dataclass
class Steps:
    """Runs of days one after the other, by a clock of the test."""

    reviews: object
    texts: list
    now: float = 1_700_000_000.0
    number: int = field(default=0)

    def run(self, texts=None, day=DAY):
        self.number += 1
        return settle(
            self.reviews.lookup, f"run-{self.number}", texts or self.texts, day=day,
            clock=lambda: self.now,
        )  # fmt: skip

    def run_until_over(self, texts=None, day=DAY, *, most=10, pause=60.0):
        for _ in range(most):
            step = self.run(texts, day)
            if not step.waits.sentences:
                return step
            self.now += pause
        raise AssertionError(step.sentence)
