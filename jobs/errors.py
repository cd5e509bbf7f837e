"""Errors, grouped by who can act on them. Every message is one sentence or two: the rule, the
value, the cure.
"""

import contextlib
import errno
from collections.abc import Iterable, Iterator

# a disk that is full or may not be written; the same again fails until a person acts
REFUSED_BY_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES}
# and its path, at the end of a reason whose cause only the run's log has
LOG_SAYS_MORE = " The run's log: "


class TidegateError(Exception):
    """A user-facing error; shown without a traceback.

    Attributes:
        state: The state of a day that the error ends.
        status: The exit status of a program that the error ends.
    """

    state, status = "failed", 1


class DeclarationError(TidegateError):
    """The declaration, its input or its environment is wrong. Raised before work starts and before
    any call.

    Attributes:
        also: Further faults of the same place, a sentence each; `tidegate check` lists them too.
    """

    status = 2
    also: tuple[str, ...] = ()

    @classmethod
    def raise_for(cls, faults: Iterable[str], subject: str = "") -> None:
        """Raise one error with all faults; without a fault, return.

        Args:
            faults: The faults, a sentence each.
            subject: What is at fault; each sentence then begins with it, as in `moods: ...`.

        Raises:
            DeclarationError: With all of them.
        """
        begin = f"{subject}: " if subject else ""
        first, *others = [f"{begin}{fault}" for fault in dict.fromkeys(faults)] or [""]
        if first:
            error = cls(first)
            error.also = tuple(others)
            raise error


@contextlib.contextmanager
def naming(subject: object) -> Iterator[None]:
    """Begin the message of a fault that the body finds with its subject, as in `moods: ...`.

    Args:
        subject: Such as an enrichment's name.

    Raises:
        DeclarationError: As the body does.
        RunStopped: As the body does.
    """
    try:
        yield
    except (DeclarationError, RunStopped) as error:
        raise type(error)(f"{subject}: {error}") from error.__cause__


class NoInput(DeclarationError):  # noqa: N818  # nothing need be wrong
    """A day has no input file. This may be correct: a holiday, or a day in the future."""

    state = "no input"


class RunStopped(TidegateError):  # noqa: N818  # a stop is an outcome of a run, not a fault of the program
    """The run ended early because a service is down. Nothing is published; the run is restarted
    automatically.

    Only this kind can resolve itself; its subclasses have other states.
    """

    state, status = "stopped: service", 3


class ServiceDown(RunStopped):
    """A service stayed down for the declared wait, so that a waterfall may go on without it."""


class AccessRefused(RunStopped):
    """A service denies access: credentials, contract or quota. A person must act before the run can
    continue.

    Attributes:
        without_reply: The message without the service's words, which may repeat a key.
    """

    state = "stopped: credentials"

    def __init__(self, message: str, without_reply: str | None = None) -> None:
        super().__init__(message)
        self.without_reply = without_reply or message


class BudgetExhausted(RunStopped):
    """The budget is used up. A person must decide, or the budget's next day must begin."""

    state = "stopped: budget"


class RunWaits(RunStopped):  # nothing is wrong
    """Jobs of a vendor are open. A later run continues, and submits none of them again.

    Attributes:
        cap_left: What the run left of its cap, in the cap's units; None without a cap.
    """

    state, status = "waiting", 10

    def __init__(self, reason: str, cap_left: float | None = None) -> None:
        super().__init__(reason)
        self.cap_left = cap_left


class RowFailed(TidegateError):  # noqa: N818  # names the declared policy on_... = "fail"
    """A row ended in an outcome whose declared policy is to fail the run."""

    status = 3


class LedgerError(TidegateError):
    """The ledger cannot store or read answers: a full disk, a read-only folder, a newer format."""


class SparkFailed(TidegateError):  # noqa: N818  # what happened
    """Spark failed to start or to work, outside a run."""


class TaskFailed(TidegateError):  # noqa: N818  # what happened
    """A task failed with a foreign error, such as one of a user's function; Spark does not retry
    it.
    """


class PublishConflict(TidegateError):  # noqa: N818  # the other run is right too
    """The day cannot be published: another run published it meanwhile, or its checks hold
    it back.
    """


class DayTaken(TidegateError):  # noqa: N818  # nothing is wrong: the other run is at work
    """Another run holds the day. Nothing was started."""

    state = "not started"


class RunCancelled(TidegateError):  # noqa: N818  # nobody's fault
    """Spark no longer needs the task: it was cancelled, a limit has its rows, or another part of
    the run failed.
    """
