"""What a preview keeps: its answers in the ledger, and a bill for `tidegate costs`."""

import datetime as dt
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pyarrow as pa

from jobs.commands.frames.frame_bills import billed
from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Key
from jobs.ledger.keys import key_text
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.selection import Search
from jobs.ledger.stored_request import write_request
from jobs.run.keys.hits import known_answers, with_index
from jobs.run.keys.registration import registered
from jobs.run.plan.options import RunOptions, plan_ledger
from jobs.tables.records import run_records
from jobs.task.plan import PartitionPlan


@contextmanager
def keeping(
    enrichment: Enrichment,
    plan: PartitionPlan,
    keys: Sequence[Key],
    *,
    discard: bool,
    new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
) -> Iterator[PartitionPlan]:
    """Yield the plan of a single lookup with its ledger, whose answers need no call, and with a
    bill.

    With `discard` it has no ledger: each key is called, and nothing is stored.

    Raises:
        LedgerError: The ledger cannot be used.
    """
    (lookup,), run_id = plan.lookups, new_id().hex
    ledger = None if discard else plan_ledger(enrichment, lookup, run_id, RunOptions())
    with ExitStack() as stack:
        if ledger is not None:
            stack.enter_context(registered([ledger]))
            write_request(ledger.open_folder(), lookup)
            plan = replace(plan, ledgers=(_with_known(ledger, plan, keys),))
        began = run_records.now(now)
        yield stack.enter_context(billed(enrichment, plan, run_id, began))


def _with_known(ledger: LedgerPlan, plan: PartitionPlan, keys: Sequence[Key]) -> LedgerPlan:
    texts = [key_text(key, hidden=ledger.hidden) for key in keys if None not in key]
    search = Search(ledger.open_folder(), pa.array(texts, pa.string()))
    return with_index(ledger, known_answers(search, plan.lookups[0], ledger))
