"""Decides which stored answers spare a call, for the driver, its tasks and estimates alike.

Stored answers that the declaration calls errors (error_when, required) hold for `ttl.error`. Their
raw response is stored like any other, so that a corrected declaration maps it again without a call.
"""

import logging

import pyarrow as pa
import pyarrow.compute as pc

from jobs.clients.client import Client, DeclaredError
from jobs.clients.registry import client_for
from jobs.declare.answers.answer_json import load, require_readable
from jobs.declare.ledger_settings import AnyAge, Ttl
from jobs.declare.lookup import Lookup
from jobs.ledger.answers import StoredAnswer, as_answers
from jobs.ledger.plan import LedgerPlan
from jobs.run.keys.key_texts import rows_without
from jobs.task.rows.ledger_hits import UnreadableAnswer

_log = logging.getLogger("tidegate.ledger")


def needing_no_call(
    lookup: Lookup, plan: LedgerPlan, answers: pa.Table, now_us: int
) -> tuple[pa.Table, pa.Array]:
    """Return the records that spare a call, and the keys of errors that are too old."""
    if plan.idempotent:  # an open mark "asked" matters only for calls that must not be repeated
        answers = answers.filter(pc.not_equal(answers["outcome"], "asked"))
    return without_old_errors(lookup, answers, ttl=plan.ttl, now_us=now_us)


def without_old_errors(
    lookup: Lookup, answers: pa.Table, *, ttl: Ttl, now_us: int
) -> tuple[pa.Table, pa.Array]:
    """Return the answers that spare a call, and the keys of errors older than `ttl.error`.

    With AnyAge all answers stay: replay and remap decide themselves what is called.
    """
    longest = ttl.max_age_us()["error"]
    nothing = pa.array([], pa.string())
    if not lookup.judges_answers or longest is None or isinstance(ttl, AnyAge):
        return answers, nothing
    judge = client_for(lookup, 1)  # it is never opened, and only maps answers
    is_old = [
        answer.outcome == "ok"
        # an answer of a clock ahead of this one is too old for 0 too
        and (longest == 0 or now_us - answer.answered_at >= longest)
        and _is_error(judge, answer)
        for answer in as_answers(answers)
    ]
    old = pa.array(is_old, pa.bool_())
    return answers.filter(pc.invert(old)), answers["key"].filter(old).combine_chunks()


def without_unreadable(lookup: Lookup, answers: pa.Table, keys: pa.ChunkedArray) -> pa.Table:
    """Return the answers without unreadable answers of `keys`, each of which the log names."""
    few = answers.filter(pc.is_in(answers["key"], value_set=keys.combine_chunks()))
    unreadable = []
    for row, response in enumerate(few["response"].cast(pa.large_binary()).to_pylist()):
        try:
            require_readable(response or b"null")
        except ValueError as error:
            (stored,) = as_answers(few.slice(row, 1))
            unreadable.append(stored.key)
            _log.warning(
                "lookup %s: %s; the key is asked again",
                lookup.name,
                UnreadableAnswer(stored, error),
            )
    return rows_without(answers, "key", pa.array(unreadable, pa.string()))


def _is_error(judge: Client, stored: StoredAnswer) -> bool:
    try:
        judge.columns(load(stored.response or b"null"))
    except ValueError as error:  # others do not fit the columns, and stay
        return isinstance(error, DeclaredError)
    return False
