"""What can go wrong, by who can act on it. Every message is one sentence or two: the rule, the value, the cure."""

from __future__ import annotations

from collections.abc import Iterable

LOG_SAYS_MORE = " Spark's log: "  # and its path, at the end of a reason that Tidegate cannot know enough of


class TidegateError(Exception):
    """Anything that Tidegate says to a person; shown without a traceback."""


class DeclarationError(TidegateError):
    """The declaration, its input or its surroundings do not fit. Raised before work starts; nothing was called.

    also: whatever else was found wrong at the same place, a sentence each; `tidegate check` lists them too.
    """

    also: tuple[str, ...] = ()

    @classmethod
    def raise_for(cls, sentences: Iterable[str]) -> None:
        """Raise one error that lists every sentence; without a sentence, return.

        Args:
            sentences: What is wrong, a sentence each.

        Raises:
            DeclarationError: With all of them.
        """
        first, *others = [*dict.fromkeys(sentences)] or [""]
        if first:
            error = cls(first)
            error.also = tuple(others)
            raise error


class NoInput(DeclarationError):  # noqa: N818  # nothing need be wrong
    """A day has no file of input, which may be right: a day off, or one that is still to come."""


class RunStopped(TidegateError):  # noqa: N818  # a stop is an outcome of a run, not a fault of the program
    """The run ended early because a service is down. Nothing is published; it can be started again, and is.

    state: the word for it, here and of the kinds of stop below. Only this one may pass by itself.
    """

    state = "stopped: service"


class AccessRefused(RunStopped):
    """A service refuses us: our credentials, our contract or our quota. Somebody has to act before it goes on."""

    state = "stopped: credentials"


class BudgetExhausted(RunStopped):
    """What may be spent is spent. Somebody has to decide, or the budget's next day to begin."""

    state = "stopped: budget"


class RowFailed(TidegateError):  # noqa: N818  # names the declared policy on_... = "fail"
    """A row ended in an outcome that the declaration says must fail the run."""


class LedgerError(TidegateError):
    """The ledger cannot keep or give answers: a full disk, a folder that may not be written, a newer format."""


class SparkFailed(TidegateError):  # noqa: N818  # what happened
    """Spark could not start, or not do what was asked of it, outside a run."""


class TaskFailed(TidegateError):  # noqa: N818  # what happened
    """A task of the run failed by an error that is none of ours, as one of a user's function; it is not tried again."""


class PublishConflict(TidegateError):  # noqa: N818  # the other run is right too
    """The day cannot be published: another run published it meanwhile, or its checks hold it back."""


class DayTaken(TidegateError):  # noqa: N818  # nothing is wrong: the other run is at work
    """The day is being run by somebody else. Nothing was started."""


class ComputedBefore(TidegateError):  # noqa: N818  # says what is wrong, not that something is
    """An enriched DataFrame is computed a second time, which would call its services a second time."""


class RunCancelled(TidegateError):  # noqa: N818  # nobody's fault
    """Spark wants the task no more: cancelled, enough rows seen, or a part of the run failed elsewhere."""
