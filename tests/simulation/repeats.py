"""Why a key that was charged may be charged again."""

from tests.simulation.night_facts import DeclaredRun, NightFacts, run_of, text_of
from tests.simulation.vendor import Charge, Request

FILE_ERRORS = ("error before a file operation", "error after a file operation", "power cut")
STORED_WITHIN = 1.5  # s after its answer, on a fast disk


class Repeats:
    """Knows which calls of a key may be made again."""

    def __init__(self, facts: NightFacts) -> None:
        self._facts, self._night, self._vendor = facts, facts.night, facts.vendor

    def are_right(
        self, charge: Charge, request: Request, run: DeclaredRun, stored_at: float | None
    ) -> bool:
        """Whether a charged key may be charged again."""
        # its process was killed before it could store the answer; an older answer had expired, or
        # the later one is of another run
        own = run_of(charge.process), request.lookup, text_of(charge.key[:1])
        is_stored = (
            stored_at is not None
            and stored_at >= charge.charged_at
            and own in self._facts.stored_by
        )
        lost_in_flight = (
            charge.process.is_dead and not is_stored and not self._was_stored_in_time(charge)
        )
        # the row left at its time limit, without the answer
        timed_out = charge.due_at - charge.began_at > _timeout(run, request.lookup)
        # it failed visibly: a dropped connection, another key's answer; errors are not kept
        failed = not charge.arrived and request.sent_at >= charge.failed_at
        failed |= self._failed_halfway(charge)
        # a part that was not synced was lost with the power
        lost_by_the_disk = self._facts.last_power_cut >= charge.charged_at
        # Spark runs a task twice at once: each copy calls for what the other has in flight
        # (docs/ledger.md), and the second deletes the claims of the first (docs/planning.md)
        of_a_copy = not self._facts.copied.isdisjoint(
            (run_of(charge.process), run_of(request.process))
        )
        # a retry, a hedge, or the second run of a coroutine whose first request was answered
        by_itself = charge.process is request.process and (
            not charge.arrived or request.lookup == "score"
        )
        by_itself |= charge.process is request.process and self._is_hedged(run, request)
        return (
            lost_in_flight or timed_out or failed or lost_by_the_disk or of_a_copy or by_itself
            or self._facts.is_open_again(run, request.lookup, charge.key, charge.due_at)
            or self._facts.settled_as_error(charge) or self._facts.seemed_dead(charge, request)
        )  # fmt: skip

    def _failed_halfway(self, charge: Charge) -> bool:
        """Whether the second request of a coroutine failed, so that the first answer is lost."""
        answer = self._vendor.answer(charge.lookup, charge.key, charge.version)
        if charge.lookup != "score" or len(charge.key) > 1 or "odd" not in (answer or ()):
            return False
        more = self._vendor.charges(charge.lookup, (*charge.key, "more"))
        return not any(other.process is charge.process and other.arrived for other in more)

    def _was_stored_in_time(self, charge: Charge) -> bool:
        """Whether the process lived so long after the answer that it must have stored it."""
        night = self._night
        if (
            charge.lookup == "score"
            or not charge.arrived
            or any(self._vendor.faults.struck[error] for error in FILE_ERRORS)
        ):
            return False
        within = (
            STORED_WITHIN
            + 200 * night.latency
            + (night.flush_seconds if night.storage == "s3" else 0.0)
        )
        return charge.process.died_at - charge.due_at > within

    @staticmethod
    def _is_hedged(run: DeclaredRun, request: Request) -> bool:
        return run.lookups[request.lookup].hedge_after is not None


def _timeout(run: DeclaredRun, lookup: str) -> float:
    return float(run.lookups[lookup].timeout or 0.0) - 1.0
