"""Counts which keys of a lookup have a stored answer, and why the others are asked."""

from dataclasses import dataclass

import pyarrow as pa

from jobs.declare.ledger_settings import FOR_EVER
from jobs.declare.lookup import Lookup
from jobs.declare.values.fingerprint import plain
from jobs.declare.vendor_jobs import JobLookup
from jobs.ledger.answers import SCHEMA
from jobs.ledger.job_files import JobFiles
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.selection import select
from jobs.ledger.stored_request import other_versions, read_request, what_changed
from jobs.run.keys.judged_answers import needing_no_call
from jobs.run.keys.key_texts import TEXT, rows_without

NO_ANSWER, OUTLIVED, REFRESHED = "no answer stored", "ttl run out", "declared expired"
IN_JOBS = "in an open job"
FAILED = "answered with an error"  # by error_when or required


@dataclass(frozen=True)
class KeyCounts:
    """What becomes of a lookup's keys.

    Attributes:
        answers: The stored answers that spare a call.
        called: The rows of the keys that are called.
        because: By reason, the number of keys without a stored answer.
    """

    answers: pa.Table
    called: pa.Table
    because: dict[str, int]


def count_keys(lookup: Lookup, wanted: pa.Table, plan: LedgerPlan | None, now_us: int) -> KeyCounts:
    """Divide keys, as `PlannedKeys.of` returns them, by what a run would do with them.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    if plan is None:
        nothing = SCHEMA.empty_table()
        return KeyCounts(nothing, wanted, {NO_ANSWER: wanted.num_rows})
    folder = plan.open_folder()
    selected = select(folder, wanted[TEXT], now_us=now_us, ttl=plan.ttl)
    answers, failed = needing_no_call(lookup, plan, selected.answers, now_us)
    asked = rows_without(wanted, TEXT, answers["key"])
    called = asked
    if isinstance(lookup, JobLookup):
        called = rows_without(asked, TEXT, JobFiles(folder).open_keys())
    because: dict[str, int] = {}
    never_asked = called
    no_answer = {OUTLIVED: selected.expired, REFRESHED: selected.refreshed, FAILED: failed}
    for reason, texts in no_answer.items():
        before, never_asked = never_asked, rows_without(never_asked, TEXT, texts)
        because[reason] = before.num_rows - never_asked.num_rows
    because |= _asked_before(lookup, plan, never_asked, now_us)
    because[NO_ANSWER] = called.num_rows - sum(because.values())
    because[IN_JOBS] = asked.num_rows - called.num_rows
    return KeyCounts(answers, called, because)


def _asked_before(
    lookup: Lookup, plan: LedgerPlan, wanted: pa.Table, now_us: int
) -> dict[str, int]:
    """Count keys that only an earlier request was called for, by the change since then."""
    because: dict[str, int] = {}
    now = plain(lookup.request_facts())
    folder = plan.open_folder()
    for sibling in other_versions(folder):
        if not wanted.num_rows:
            break
        known = select(sibling, wanted[TEXT], now_us=now_us, ttl=FOR_EVER).answers["key"]
        if len(known):
            reason = what_changed(read_request(sibling), now)
            because[reason] = because.get(reason, 0) + len(known)
            wanted = rows_without(wanted, TEXT, known)
    return because
