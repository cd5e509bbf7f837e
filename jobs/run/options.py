"""What one run may do about calls, and the plan of its tasks that follows from it and the declaration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from jobs.declare.ledger_settings import FOR_EVER
from jobs.declare.prices import read_money
from jobs.errors import DeclarationError
from jobs.ledger.answers import ANSWERS
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.requests import request_fingerprint
from jobs.ledger.store import LedgerFolder
from jobs.run.caps import cap_on_calls, cap_on_cost

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment
    from jobs.declare.lookup import Lookup
    from jobs.task.plan import PartitionPlan


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """max_calls: attempts over all lookups, then the run stops and can go on later; None for no cap. max_cost: the same
    for what they cost, as "5 USD". may_call: without it nothing is asked, and a key that the ledger does not know
    leaves as not_asked. ignore_ttl: an answer is used whatever its age, an error never (replay, remap).
    """

    max_calls: int | None = None
    max_cost: str | None = None
    may_call: bool = True
    ignore_ttl: bool = False

    def __post_init__(self) -> None:
        if self.max_calls is not None and self.max_calls < 1:
            raise DeclarationError(
                f"max-calls is {self.max_calls}; it must be at least 1. A run without a call: tidegate remap."
            )
        if self.max_cost is not None:
            read_money(self.max_cost, "max-cost")
            if self.max_calls is not None:
                raise DeclarationError("max-calls and max-cost are both given; a run has one cap.")


def apply_options(plan: PartitionPlan, enrichment: Enrichment, run_id: str, rules: RunOptions) -> PartitionPlan:
    """The plan with the ledgers of one run, and with what it may call."""
    ledgers = tuple(ledger_of(enrichment, lookup, run_id, rules) for lookup in enrichment.lookups)
    cap = None
    tasks = len(plan.shares[0])
    if rules.max_cost is not None:
        cap = cap_on_cost(plan.lookups, rules.max_cost, tasks)
    if rules.max_calls is not None:
        cap = cap_on_calls(plan.lookups, rules.max_calls, tasks)
    return replace(plan, ledgers=ledgers, may_call=rules.may_call, cap=cap)


def ledger_of(enrichment: Enrichment, lookup: Lookup, run_id: str, rules: RunOptions) -> LedgerPlan | None:
    """Where a lookup's answers are kept, and for how long they hold; None when the enrichment keeps none."""
    declared = enrichment.ledger
    if declared is None:
        return None
    return LedgerPlan(
        root=declared.path if "://" in declared.path else str(Path(declared.path).resolve()),
        lookup=lookup.name,
        fingerprint=request_fingerprint(lookup),
        run_id=run_id,
        ttl=FOR_EVER if rules.ignore_ttl else lookup.ttl,
        flush_rows=declared.flush_rows,
        flush_seconds=declared.flush_seconds,
        hidden=lookup.reads(enrichment.pii),
        idempotent=lookup.idempotent,
    )


def bytes_of(ledger: LedgerPlan) -> int:
    """What the files of its answers take, whichever run stored them."""
    return LedgerFolder(ledger.root, ledger.lookup, ledger.fingerprint).bytes()


def stored_by(ledger: LedgerPlan) -> int:
    """Answers and misses that the run stored."""
    from jobs.ledger.scan import read_parts
    from jobs.run.hits import folder_of, run_of_keys  # loads Spark: not for those who only make rules

    folder = folder_of(ledger)
    parts = [part for run in (ledger.run_id, run_of_keys(ledger.run_id)) for part in folder.parts(run)]
    tables = (table for _, table in read_parts(folder, parts) if table is not None)
    answers = pa.array(ANSWERS)
    return sum(pc.sum(pc.is_in(table["outcome"], value_set=answers)).as_py() or 0 for table in tables)
