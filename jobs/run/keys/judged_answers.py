"""Decides which stored records need no call, for the driver, its tasks and estimates alike.

Stored answers that the declaration calls errors (error_when, required) hold as long as an error
does. Their raw response is stored like any other, so that a corrected declaration maps it again
without a call.
"""

import logging

import pyarrow as pa
import pyarrow.compute as pc

from jobs.clients.client import Client, DeclaredError
from jobs.clients.registry import client_for
from jobs.declare.answers.answer_json import load
from jobs.declare.ledger_settings import FOR_EVER, Ttl
from jobs.declare.lookup import Lookup
from jobs.ledger.answers import StoredAnswer, as_answers
from jobs.ledger.plan import LedgerPlan
from jobs.task.rows.ledger_hits import UnreadableAnswer

_log = logging.getLogger("tidegate.ledger")


def needing_no_call(
    lookup: Lookup, plan: LedgerPlan, answers: pa.Table, now_us: int
) -> tuple[pa.Table, pa.Array]:
    """Returns the records of `select` that need no call, and the keys of old errors."""
    if plan.idempotent:
        # this call may be repeated
        answers = answers.filter(pc.not_equal(answers["outcome"], "asked"))
    return without_old_errors(lookup, answers, ttl=plan.ttl, now_us=now_us)


def without_old_errors(
    lookup: Lookup, answers: pa.Table, *, ttl: Ttl, now_us: int
) -> tuple[pa.Table, pa.Array]:
    """Returns the answers that need no call, and the keys of errors older than `ttl.error`.

    ttl: with FOR_EVER (replay, remap) all answers stay, because those commands decide themselves
    what is called.
    """
    longest = ttl.max_age_us()["error"]
    nothing = pa.array([], pa.string())
    if not lookup.judges_answers or longest is None or ttl is FOR_EVER:
        return answers, nothing
    caller = client_for(lookup, 1)
    is_old = [
        one.outcome == "ok"
        and (longest == 0 or now_us - one.answered_at >= longest)
        and _is_error(caller, one)
        for one in as_answers(answers)
    ]
    old = pa.array(is_old, pa.bool_())
    return answers.filter(pc.invert(old)), answers["key"].filter(old).combine_chunks()


def without_unreadable(lookup: Lookup, answers: pa.Table, keys: pa.ChunkedArray) -> pa.Table:
    """Returns the answers without unreadable answers of `keys`, each of which the log names."""
    few = answers.filter(pc.is_in(answers["key"], value_set=keys.combine_chunks()))
    unreadable = []
    for stored in as_answers(few):
        try:
            load(stored.response or b"null")
        except ValueError as error:
            unreadable.append(stored.key)
            _log.warning(
                "lookup %s: %s; the key is asked again",
                lookup.name,
                UnreadableAnswer(stored, error),
            )
    return answers.filter(
        pc.invert(pc.is_in(answers["key"], value_set=pa.array(unreadable, pa.string())))
    )


def _is_error(caller: Client, stored: StoredAnswer) -> bool:
    try:
        caller.columns(load(stored.response or b"null"))
    except ValueError as error:  # others do not fit the columns, and stay
        return isinstance(error, DeclaredError)
    return False
