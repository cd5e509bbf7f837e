"""What the driver does with the ledger around one run: hits before it, keys asked first, and nothing left behind."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it

from jobs.ledger.distinct import BY_ROW, ROWS_PER_KEY, ask_keys, asks_keys_first, may_ask_keys_first, said_of
from jobs.ledger.hits import beating, begin_run, end_run, find_hits, folder_of, knows_nothing, with_index
from jobs.ledger.request_notes import write_note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.bridge.partition import PartitionPlan
    from jobs.ledger.hits import Hits
    from jobs.sent_requests import SentRequests

_ABOUT = 0.9  # the approximate count of distinct keys is off by 5 %


@dataclass(frozen=True)
class Driven:
    """The plan that the rows are to be carried out by, and how each lookup was asked, in order, for the record."""

    plan: PartitionPlan
    asked_by: tuple[str, ...]


@contextmanager
def driven(
    prepared: DataFrame,
    plan: PartitionPlan,
    *,
    scratch: Path,
    asking: Callable[[int | None], object] = lambda _: None,
    sent: SentRequests | None = None,
) -> Iterator[Driven]:
    """`plan` with what the ledger knows of the day's keys, those asked that are best asked first; for one `with`.

    asking: told of the number of keys before they are asked, and None after that. sent: told of the requests. Leaving
    it, by an error too, removes the run's files. Raises LedgerError, and what the calls raise; their answers are in the
    ledger then.
    """
    seed = secrets.randbits(31)
    with ExitStack() as stack:
        stack.enter_context(beating([ledger for ledger in plan.ledgers if ledger is not None]))
        hits: dict[int, Hits] = {}
        first: dict[int, Hits] = {}
        ledgers = list(plan.ledgers)
        others: dict[int, list[str]] = {}
        for place, ledger in enumerate(plan.ledgers):
            if ledger is not None:
                empty = knows_nothing(folder_of(ledger))
                stack.callback(end_run, ledger)
                others[place] = begin_run(ledger)
                write_note(folder_of(ledger), plan.lookups[place])
                if empty and not others[place] and not _repeats(prepared, plan, place):
                    continue
                hits[place] = find_hits(
                    prepared, plan.layout.keys[place], ledger, lookup=plan.lookups[place], seed=seed
                )
                stack.callback(hits[place].drop)
        for place, one in hits.items():
            ledgers[place] = indexed = with_index(one.plan, one.answers)
            lookup, tasks = plan.lookups[place], len(plan.shares[place])
            if plan.may_call and asks_keys_first(lookup, plan.mode, tasks, one, others[place]):
                first[place] = replace(one, plan=indexed)
        found = replace(plan, ledgers=tuple(ledgers))
        if first:
            asking(sum(one.keys for one in first.values()))
            found = ask_keys(found, first, others, seed=seed, scratch=scratch, sent=sent)
            asking(None)
        asked_by = (said_of(first[place]) if place in first else BY_ROW for place in range(len(plan.lookups)))
        yield Driven(found, tuple(asked_by))


def _repeats(prepared: DataFrame, plan: PartitionPlan, place: int) -> bool:
    """Whether the keys may repeat so often that the rule holds: else an empty ledger is not worth a look at them."""
    if len(plan.shares[place]) == 1 or not may_ask_keys_first(plan.lookups[place], plan.mode):
        return False
    names = plan.layout.keys[place]
    seen = prepared.agg(F.count("*"), F.approx_count_distinct(F.xxhash64(*names))).first()
    assert seen is not None  # an aggregate without a group always gives one row
    return bool(seen[0] >= ROWS_PER_KEY * _ABOUT * seen[1])
