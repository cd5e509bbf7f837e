"""The executor's side of a lookup: a client per partition, and the errors of calls."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import PurePath
from typing import Any, Protocol

from jobs.declare.lookup import Key
from jobs.wording import described, innermost_frame

Ask = Callable[[Key], Awaitable[Any]]  # makes an attempt for a key; returns its answer
# sends keys in one request; returns an outcome per key
Send = Callable[[Sequence[Key]], Awaitable[Sequence[Any]]]


class Client(Protocol):
    """Calls an outside system. Bound to a partition's event loop; `call` runs concurrently."""

    async def open(self) -> None:
        """Open resources that all calls share. Runs before the first clock starts."""

    async def close(self) -> None:
        """Release the resources of `open`; also runs after a failure."""

    async def call(self, key: Key) -> Any | None:
        """Return an attempt's answer, None for a miss.

        Raises:
            CallFailed: The attempt has no answer.
            Throttled: The service asks to wait.
            RunStopped: The run ends, as with AccessRefused.
        """

    def columns(self, answer: Any) -> tuple[Any, ...]:
        """Return the answer's columns as in `returns`. Raises ValueError if it does not fit."""

    def fallback(self, key: Key) -> Any | None:
        """Return the fallback answer after a timeout, or None. Raises CallFailed."""


class RunsUserCode:
    """A client that calls a function of the user; its methods are on the stack below it."""

    name: str  # of the lookup


class DeclaredError(ValueError):
    """An answer that the declaration calls an error (error_when, required)."""


class CallFailed(Exception):  # noqa: N818  # reads as what happened
    """An attempt without an answer.

    Args:
        reason: What happened.
        passing: Whether the failure is transient, possibly the service's.

    Attributes:
        may_have_acted: False if its only request was not sent, such as without a connection.
    """

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing, self.may_have_acted = passing, True


def failed_by_cancel(error: asyncio.CancelledError) -> CallFailed:
    """Return the failure of a user's function that waited for something cancelled.

    Raises the error if the call itself is cancelled.
    """
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise error
    return CallFailed("something that the function waited for was cancelled", passing=True)


def failed_by_user(
    error: BaseException, module: str | None, *, passing: bool = False
) -> CallFailed:
    """Return the failure for an exception of a user's function; reraise interrupts.

    SystemExit (sys.exit) and other exceptions that asyncio would pass on would end the run because
    of one row.

    Args:
        error: The exception.
        module: Full name of the function's module; None for a function that has none.
        passing: Whether the failure is transient.
    """
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        raise error
    return CallFailed(with_line(error, module), passing=passing)


def with_line(error: BaseException, module: str | None) -> str:
    """Return `KeyError: 'text' (enrichments/mood.py:42)`: an exception and its innermost line in
    the module's package.

    The file is named from the package on, the same on all machines.
    """
    found = innermost_frame(error, (module or "").partition(".")[0])
    if found is None:
        return described(error)
    frame, line = found
    file = PurePath(frame.f_code.co_filename)
    depth = frame.f_globals["__name__"].count(".") + 1 + (file.name == "__init__.py")
    return f"{described(error)} ({'/'.join(file.parts[-depth:])}:{line})"


class Unclear(CallFailed):
    """The service answered, but not for this key; an unrepeatable call counts as made."""


class Redirected(CallFailed):
    """The service redirects, which is not followed: an error of the declaration, not of the key."""


class Throttled(Exception):  # noqa: N818  # reads as what happened
    """The service throttled the call: no request for `seconds`. Uses no attempt of the row.

    status: Of the answer; 0 if the text of an answer said it.
    """

    def __init__(self, reason: str, seconds: float, status: int = 0) -> None:
        super().__init__(reason)
        self.seconds, self.status = seconds, status


class NotSent(Throttled):
    """A pause of the service began before the call left: no request was made."""

    def __init__(self) -> None:
        super().__init__("a pause of the service began before the call left", 0.0)


def unsettled(error: CallFailed | Throttled) -> CallFailed:
    """Return the failure of a call that has acted and must not be made again."""
    is_passing = isinstance(error, Throttled) or error.passing
    return CallFailed(str(error), passing=True) if is_passing else Unclear(str(error))
