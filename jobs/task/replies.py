"""What came of one attempt at a service, and what the circuit breaker hears of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.clients.client import CallFailed, Client, Redirected, Throttled
from jobs.wording import one_line

if TYPE_CHECKING:
    from jobs.task.circuit_breaker import CircuitBreaker


@dataclass(slots=True)
class Reply:
    """What came of one attempt: an answer, a miss, an error, or nothing yet (outcome None: come again).

    Rows that share a call share its reply: nobody changes one.
    """

    outcome: str | None
    answer: tuple[Any, ...] | None = None
    answered_at: int | None = None  # µs since the epoch
    error: str | None = None
    throttled: bool = False  # the service said "not now"
    passing: bool = False  # an error that may pass: worth a retry
    down: bool = False  # the service is at fault, not this row: it keeps its retries
    kept: bool = False  # the ledger holds what came back


class Replies:
    """Makes replies of what the calls of one lookup come to, and tells its circuit breaker of each."""

    def __init__(self, caller: Client, watch: CircuitBreaker, *, idempotent: bool) -> None:
        self._caller = caller
        self._watch = watch
        self._idempotent = idempotent

    def failed(self, failure: Throttled | CallFailed, *, repeated: bool) -> Reply:
        """Of a call that gave no answer. repeated: of a row that failed before."""
        reason = one_line(str(failure))
        if isinstance(failure, Throttled):
            self._watch.throttled(reason, failure.seconds)
            return Reply(None, error=reason, throttled=True)
        if isinstance(failure, Redirected):
            self._watch.redirected(reason)
            return Reply("error", error=reason, kept=self._idempotent)  # nothing of this key is to be stored
        if not failure.passing:
            self._watch.succeeded()
            return Reply("error", error=reason)
        self._watch.failed(reason, repeated=repeated)
        return Reply("error", error=reason, passing=True, down=self._watch.is_down)

    def answered(self, answer: Any | None, now: int) -> Reply:
        """Of a call that was answered."""
        if self._watch.is_degraded:
            self._watch.succeeded()
        return self.read(answer, now)

    def read(self, answer: Any | None, now: int) -> Reply:
        """What is answered, wherever it comes from: the breaker hears nothing of it."""
        if answer is None:
            return Reply("miss", None, now)
        try:
            return Reply("ok", self._caller.columns(answer), now)
        except ValueError as error:
            return Reply("error", error=one_line(f"the answer does not fit: {error}"), kept=True)
