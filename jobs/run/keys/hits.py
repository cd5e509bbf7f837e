"""The driver's side of the ledger: finds the answers of a day's keys, and indexes them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from jobs.ledger.answers import SCHEMA, only_answers
from jobs.ledger.index import write_index
from jobs.ledger.plan import LedgerPlan, run_of_keys
from jobs.ledger.resolution import effective_records
from jobs.ledger.selection import Search, Seen
from jobs.ledger.working_folders import RUNS
from jobs.run.keys.judged_answers import needing_no_call, without_unreadable
from jobs.run.keys.key_texts import ROWS, TEXT, rows_without
from jobs.storage.urls import is_url

if TYPE_CHECKING:
    from jobs.declare.lookup import Lookup
    from jobs.run.keys.day_keys import SparkKeys, SparkRows
    from jobs.run.keys.driver_keys import DriverKeys, KeyRows


@dataclass(frozen=True)
class Hits:
    """The ledger's answers for a lookup's keys of a day."""

    plan: LedgerPlan | None  # None: nothing is stored
    names: tuple[str, ...]  # the columns of the key
    keys: DriverKeys | SparkKeys
    answers: pa.Table  # of keys that need no call, as `select` returns them
    lookup: Lookup
    seen: Seen = field(default_factory=Seen)  # the records that the search for them read
    skipped: Sequence[str] = ()  # torn and foreign files, whose answers are not among them

    @functools.cached_property
    def missing(self) -> pa.Table:
        return rows_without(self.keys.wanted, TEXT, self.answers["key"])

    def without_responses(self) -> Hits:
        """Return the hits without the responses, which the rows find in the index."""
        return replace(self, answers=self.answers.select(["key"]))

    @property
    def repeated(self) -> pa.Table:
        return self.missing.filter(pc.greater(self.missing[ROWS], 1))


def find_hits(
    rows: KeyRows | SparkRows,
    lookup: Lookup,
    plan: LedgerPlan | None,
    *,
    seed: int,
    are_read: bool = False,
) -> Hits:
    """Find a day's distinct keys, and the newest valid answer of each. Raises LedgerError.

    Args:
        rows: The keys.
        lookup: Their lookup.
        plan: The ledger; None: nothing is stored.
        seed: Draws a row of each key.
        are_read: Whether other lookups read the answers.
    """
    keys = rows.distinct(hidden=plan is not None and plan.hidden, seed=seed)
    if plan is None:
        return Hits(plan, rows.names, keys, SCHEMA.empty_table(), lookup)
    folder = plan.open_folder()
    search = Search(folder, keys.wanted[TEXT])
    answers = known_answers(search, lookup, plan)
    if plan.idempotent:  # each task would call a key in several rows
        least = 0 if are_read else 1
        asked_first = keys.wanted.filter(pc.greater(keys.wanted[ROWS], least))[TEXT]
        answers = without_unreadable(lookup, answers, asked_first)
    return Hits(plan, rows.names, keys, answers, lookup, search.seen, folder.skipped)


def known_answers(
    search: Search, lookup: Lookup, plan: LedgerPlan, clock: Callable[[], int] = time.time_ns
) -> pa.Table:
    """Read new records, and return the newest of keys that need no call. Raises LedgerError."""
    now = clock() // 1000
    search.update(now)
    return needing_no_call(lookup, plan, search.selected(now_us=now, ttl=plan.ttl).answers, now)[0]


def with_own_answers(hits: Hits) -> Hits:
    """Return the hits with what is stored now, this run's answers, and the answers so far: all
    hold to the end of this run, whatever their age.
    """
    assert hits.plan is not None
    folder = hits.plan.open_folder()
    stored = folder.read(folder.parts(run_of_keys(hits.plan.run_id)))
    prefetched = only_answers(effective_records(stored))
    since = known_answers(Search(folder, hits.keys.wanted[TEXT]), hits.lookup, hits.plan)
    known = prefetched
    for older in (since, hits.answers):
        more = rows_without(older, "key", known["key"])
        known = pa.concat_tables([more.select(prefetched.column_names), known])
    return replace(hits, answers=known)


def file_of_run(plan: LedgerPlan, name: str) -> str:
    """Return the file's name as an executor opens it; a URL's options, such as
    ?endpoint_override=..., stay behind its path.
    """
    root, mark, options = plan.root.partition("?") if is_url(plan.root) else (plan.root, "", "")
    folder = f"{root.rstrip('/')}/{plan.lookup}/{plan.fingerprint}/{RUNS}/{plan.run_id}"
    return f"{folder}/{name}{mark}{options}"


def with_index(
    plan: LedgerPlan, answers: pa.Table, clock: Callable[[], int] = time.time_ns
) -> LedgerPlan:
    """Return the plan with an index of these answers, where every executor reads it; without an
    index if there are no answers.
    """
    if not answers.num_rows:
        return plan
    # a new name, because a task may have the last index mapped
    path = file_of_run(plan, f"index-{clock()}.arrow")
    write_index(path, answers)
    return replace(plan, index=path)
