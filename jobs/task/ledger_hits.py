"""What is known of a key, from the ledger or as it was asked first, as a row takes it: in place of a call, at once."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from jobs.declare.answer_json import load
from jobs.declare.services import Cache
from jobs.task.asked_once import AskedBefore
from jobs.task.replies import Reply
from jobs.task.shared_calls import AnswerCache
from jobs.wording import one_line

if TYPE_CHECKING:
    from jobs.clients.client import Client
    from jobs.ledger.answers import StoredAnswer
    from jobs.task.lookup_state import LookupState


class LedgerHits:
    """Maps stored answers to columns, each once while it is in use."""

    def __init__(self, caller: Client) -> None:
        self._caller = caller
        self._mapped = AnswerCache[Reply](Cache(), lambda: 0)

    def give(self, asked: LookupState) -> None:
        """Put at the row what is known of its key: status, answer, where it is from; for the one row that stands for
        a key asked once for the whole job, the audit of that call too.
        """
        known = asked.stored
        assert known is not None
        if not isinstance(known, AskedBefore):
            self._put(asked, self._reply(known), "ledger")
            return
        before = known.asked
        if known.audit_is_here:
            asked.attempts = tuple(before.attempts)
            asked.paused = (before.paused_ms or 0.0) / 1e3
            if before.attempts and before.latency_ms is not None:
                asked.finished = before.attempts[0][0] + round(before.latency_ms * 1e3)
        reply = Reply(before.outcome, before.answer, before.answered_at, error=before.error)
        self._put(asked, reply, "call" if known.audit_is_here else "shared")

    def _put(self, asked: LookupState, reply: Reply, source: str) -> None:
        asked.status, asked.answer, asked.error = reply.outcome, reply.answer, reply.error
        asked.answered_at = reply.answered_at
        if reply.outcome != "unknown" and (source != "call" or reply.answered_at is not None):
            asked.source = source

    def _reply(self, stored: StoredAnswer) -> Reply:
        mapped = self._mapped.get(stored.key)
        if mapped is not None and mapped.answered_at == stored.answered_at:
            self._mapped.may_be_used(stored.key, answered_at=stored.answered_at)
            return mapped
        reply = reply_of(self._caller, stored)
        if reply.answered_at is not None:
            self._mapped.put(stored.key, reply, reply.answer)
        return reply


def reply_of(caller: Client, stored: StoredAnswer) -> Reply:
    """What a stored answer means to a row, with the columns as they are declared now."""
    if stored.outcome == "miss":
        return Reply("miss", None, stored.answered_at)
    if stored.outcome == "asked":
        when = dt.datetime.fromtimestamp(stored.answered_at / 1e6, dt.UTC)
        return Reply(
            "unknown",
            error=f"run {stored.run_id} asked at {when:%Y-%m-%d %H:%M:%S} UTC, and its answer is lost; "
            "the call must not be made twice (idempotent=False)",
        )
    message = None if stored.response is None else load(stored.response)
    if stored.outcome != "ok":
        return Reply("error", error=one_line(str(message)), kept=True)
    try:
        return Reply("ok", caller.columns(message), stored.answered_at)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        return Reply("error", error=one_line(f"the stored answer does not fit: {error}"), kept=True)
