"""The result of an attempt, and its report to the circuit breaker."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from jobs.clients.client import CallFailed, Client, Redirected, Throttled, Unclear
from jobs.errors import AccessRefused
from jobs.schema.personal import shown_reason
from jobs.task.lookup.circuit_breaker import CircuitBreaker
from jobs.wording import one_line


@dataclass(slots=True)
class Reply:
    """The result of an attempt: an answer, a miss, an error, or none yet (outcome None: retry).

    Rows that share a call share its reply, which is immutable.
    """

    outcome: str | None
    answer: tuple[Any, ...] | None = None
    answered_at: int | None = None  # µs since the epoch
    error: str | None = None
    throttled: bool = False  # the service throttled the call
    passing: bool = False  # a transient error, which is retried
    unclear: bool = False  # an error that does not tell whether the service did what was asked
    down: bool = False  # the service is at fault: the row keeps its retries
    kept: bool = False  # the error is not stored: the answer is, or the service redirects


class Replies:
    """Turns results of a lookup's calls into replies, and reports them to its circuit breaker."""

    def __init__(
        self, caller: Client, watch: CircuitBreaker, *, idempotent: bool, hidden: bool
    ) -> None:
        """Create it; `hidden` tells that keys are personal, and errors may repeat them."""
        self._caller = caller
        self._watch = watch
        self._idempotent = idempotent
        self._hidden = hidden

    def shown(self, reason: str) -> str:
        """Return what may leave the task of an error."""
        return shown_reason(reason) if self._hidden else reason

    def refused(self, error: AccessRefused) -> AccessRefused:
        """Return the error that ends the run."""
        return AccessRefused(error.without_reply) if self._hidden else error

    def failed(self, failure: Throttled | CallFailed, *, repeated: bool) -> Reply:
        """Return the reply of a failed call; `repeated` tells that its row failed before."""
        reason = one_line(str(failure))
        if isinstance(failure, Throttled):
            report_throttling(self._watch, failure, hidden=self._hidden)
            return Reply(None, error=reason, throttled=True)
        shown = self.shown(reason)  # by the breaker, in progress and in a stop
        if isinstance(failure, Redirected):
            self._watch.redirected(shown)
            return Reply("error", error=reason, kept=self._idempotent)  # store nothing for this key
        if not failure.passing:
            self._watch.succeeded()
            return Reply("error", error=reason, unclear=isinstance(failure, Unclear))
        self._watch.failed(shown, repeated=repeated)
        return Reply("error", error=reason, passing=True, down=self._watch.is_down)

    def answered(self, answer: Any | None, now: int) -> Reply:
        """Return the reply of an answered call."""
        if self._watch.counts_answers:
            self._watch.succeeded()
        return self.read(answer, now)

    def read(self, answer: Any | None, now: int) -> Reply:
        """Return the reply for an answer from any source, without a report to the breaker."""
        if answer is None:
            return Reply("miss", None, now)
        try:
            return Reply("ok", self._caller.columns(answer), now)
        except ValueError as error:
            return Reply("error", error=one_line(f"the answer does not fit: {error}"), kept=True)


def report_throttling(watch: CircuitBreaker, failure: Throttled, *, hidden: bool) -> None:
    """Report to the breaker, without the words of a reply if keys are personal."""
    reason = one_line(str(failure))
    is_down = failure.status == HTTPStatus.SERVICE_UNAVAILABLE
    watch.throttled(shown_reason(reason) if hidden else reason, failure.seconds, is_down=is_down)
