"""The user's function: its base class, what is refused before any record is seen, and what counts as results."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

IN = TypeVar("IN")
OUT = TypeVar("OUT")


class AsyncFunction(Generic[IN, OUT]):
    """Asks an outside system about one value at a time; many calls of one instance run interleaved on one loop.

    A base class for convenience only: any object with `async_invoke` serves, a PyFlink AsyncFunction for instance.
    Calls run in long-lived tasks, one call after another: a call that sets a context variable resets it.
    """

    def open(self, runtime_context: Any) -> Any:
        """Get ready, once, on the loop, before the first call. Plain or `async def`.

        Args:
            runtime_context: What the operator was made with.
        """

    def close(self) -> Any:
        """Let go of everything, once, also after a failure, a cancellation or a failed open. Plain or `async def`."""

    async def async_invoke(self, value: IN) -> list[OUT]:
        """Ask for one value.

        When the record's time limit expires the call is cancelled, unless `survives_timeout` says otherwise.

        Args:
            value: The value of the record.

        Returns:
            The results for the value, none to many.

        Raises:
            Exception: Fails the operator unless the retry strategy asks for another attempt.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `async def async_invoke(self, value)`")

    def timeout(self, value: IN) -> list[OUT]:
        """Give the final results for a value whose time limit has expired. A plain `def`: it cannot wait.

        Args:
            value: The value of the record.

        Returns:
            The results for the value, none to many.

        Raises:
            Exception: Fails the operator; by default TimeoutError.
        """
        raise TimeoutError(f"Async function call has timed out, input: {value!r}")


class SurvivingCalls(Protocol):
    """A function may have this method too: some of its calls are worth finishing when nobody waits any more."""

    def survives_timeout(self, value: Any) -> bool:
        """Whether the call under way for this value goes on when its record's time limit expires.

        Asked before `timeout`. What the call returns or raises is dropped, and until it ends it counts as one that
        runs. Closing the operator cancels it.

        Args:
            value: The value of the record.

        Returns:
            True to let it end.
        """


class ResultTypeError(TypeError):
    """The user's function returned something that is no list of results. A bug, so it is never retried."""


def check_function(function: Any) -> None:
    """Raise TypeError for a function whose mistakes would otherwise show at the first record, or never."""
    name = type(function).__name__
    invoke = getattr(function, "async_invoke", None)
    if not callable(invoke):
        raise TypeError(f"an async function needs a method `async def async_invoke(self, value)`; {name} has none")
    if _returns_something_else(invoke):
        raise TypeError(f"{name}.async_invoke must be a coroutine function; define it with `async def`")
    if inspect.isasyncgenfunction(invoke):
        raise TypeError(f"{name}.async_invoke must return a list; an async generator (`yield`) cannot be awaited")
    timeout = getattr(function, "timeout", None)
    if timeout is not None and not callable(timeout):
        raise TypeError(f"{name}.timeout must be a method that takes the value, got {timeout!r}")
    if timeout is not None and _is_coroutine_function(timeout):
        raise TypeError(f"{name}.timeout must be a plain `def`: it is called when the time is up and cannot wait")


def _is_coroutine_function(method: Any) -> bool:
    called = type(method).__call__ if callable(method) else None  # the method may itself be an object that is called
    return any(inspect.iscoroutinefunction(candidate) for candidate in (method, inspect.unwrap(method), called))


def _returns_something_else(method: Any) -> bool:
    """Whether it is surely no coroutine function. A callable that cannot be looked into gets the benefit of doubt."""
    if _is_coroutine_function(method) or inspect.isasyncgenfunction(method):
        return False
    return inspect.isroutine(inspect.unwrap(method)) or inspect.isroutine(getattr(method, "func", None))


def timeout_handler(function: Any) -> Callable[[Any], Any]:
    """The function's own answer to an expired time limit, or the default one, which raises."""
    handler: Callable[[Any], Any] | None = getattr(function, "timeout", None)
    return handler if handler is not None else AsyncFunction[Any, Any]().timeout


def survival(function: Any) -> Callable[[Any], bool]:
    """The function's own word on which calls survive a time limit; by default none does."""
    own: Callable[[Any], bool] | None = getattr(function, "survives_timeout", None)
    return own if own is not None else lambda _: False


def results_of(method: str, returned: Any) -> list[Any]:
    """The returned results as a list that is independent of later iteration; ResultTypeError for what is none."""
    if isinstance(returned, list):
        return returned
    if inspect.iscoroutine(returned):
        returned.close()  # else its "was never awaited" warning hides the real message
        raise ResultTypeError(f"{method} must return a list of results, got a coroutine: an `await` is missing")
    if returned is None or isinstance(returned, (str, bytes, bytearray, Mapping)) or not isinstance(returned, Iterable):
        raise ResultTypeError(
            f"{method} must return a list of results ([] for none, [result] for one), got {type(returned).__name__}"
        )
    return list(returned)


async def call_hook(function: Any, name: str, *arguments: Any) -> None:
    """Call open or close if the function has it, and await what it returns if that can be awaited."""
    hook = getattr(function, name, None)
    if hook is None:
        return
    returned = hook(*arguments)
    if isinstance(returned, Awaitable):
        await returned
