"""The user's function: its base class, the checks before the first record, and its results."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

IN = TypeVar("IN")
OUT = TypeVar("OUT")


class AsyncFunction(Generic[IN, OUT]):
    """Calls an outside system for a value; many calls of an instance run interleaved on one loop.

    The base class is optional: any object with `async_invoke` works, such as a PyFlink
    AsyncFunction. Calls run in long-lived tasks, one call after another: a call that sets a context
    variable resets it.
    """

    def open(self, runtime_context: Any) -> Any:
        """Prepare, once, on the loop, before the first call. Plain or `async def`.

        Args:
            runtime_context: The operator's argument of this name.
        """

    def close(self) -> Any:
        """Release all resources, once, also after a failure, a cancellation or a failed open.

        Plain or `async def`.
        """

    async def async_invoke(self, value: IN) -> list[OUT]:
        """Make the call for a value.

        When the record's time limit expires, the operator cancels the call. If the function has a
        method `survives_timeout(value)`, which is called before `timeout`, and it returns True, the
        call goes on: it counts as running until it ends, and its result or error is dropped.
        Closing the operator cancels it.

        Args:
            value: The value of the record.

        Returns:
            The results for the value, none to many.

        Raises:
            Exception: Fails the operator unless the retry strategy allows another attempt.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define `async def async_invoke(self, value)`"
        )

    def timeout(self, value: IN) -> list[OUT]:
        """Return the final results for a value whose time limit has expired.

        It is a plain `def` and cannot wait.

        Args:
            value: The value of the record.

        Returns:
            The results for the value, none to many.

        Raises:
            Exception: Fails the operator; by default TimeoutError.
        """
        raise TimeoutError(f"Async function call has timed out, input: {value!r}")


class ResultTypeError(TypeError):
    """The user's function returned no list of results. This is a bug, so it is never retried."""


def check_function(function: Any) -> None:
    """Raise TypeError for mistakes that otherwise show at the first record, or never."""
    name = type(function).__name__
    if inspect.isclass(function):
        raise TypeError(
            f"an async function must be an object; {function.__name__} is its class. Make one: "
            f"{function.__name__}()"
        )
    invoke = getattr(function, "async_invoke", None)
    if not callable(invoke):
        raise TypeError(
            "an async function needs a method `async def async_invoke(self, value)`; "
            f"{name} has none"
        )
    if _returns_something_else(invoke):
        raise TypeError(
            f"{name}.async_invoke must be a coroutine function; define it with `async def`"
        )
    if inspect.isasyncgenfunction(invoke):
        raise TypeError(
            f"{name}.async_invoke must return a list; an async generator (`yield`) "
            "cannot be awaited"
        )
    for hook in ("open", "close", "timeout", "survives_timeout"):
        method = getattr(function, hook, None)
        if method is not None and not callable(method):
            raise TypeError(f"{name}.{hook} must be a method, got {method!r}")
        if inspect.isasyncgenfunction(method) or (
            hook != "timeout" and inspect.isgeneratorfunction(method)
        ):
            raise TypeError(f"{name}.{hook} must not `yield`: nobody would run its body")
        if hook not in ("open", "close") and _is_coroutine_function(method):
            raise TypeError(
                f"{name}.{hook} must be a plain `def`: it is called when the time is up "
                "and cannot wait"
            )


def _is_coroutine_function(method: Any) -> bool:
    # the method may be a callable object
    called = type(method).__call__ if callable(method) else None
    return any(
        inspect.iscoroutinefunction(candidate)
        for candidate in (method, inspect.unwrap(method), called)
    )


def _returns_something_else(method: Any) -> bool:
    """Return whether this is certainly no coroutine function; False if it cannot be inspected."""
    if _is_coroutine_function(method) or inspect.isasyncgenfunction(method):
        return False
    return inspect.isroutine(inspect.unwrap(method)) or inspect.isroutine(
        getattr(method, "func", None)
    )


def hook_or(default: Callable[[Any], Any], function: Any, name: str) -> Callable[[Any], Any]:
    """Return the function's method of this name, or the default if it has none."""
    method: Callable[[Any], Any] | None = getattr(function, name, None)
    return default if method is None else method


def as_results(method: str, returned: Any) -> list[Any]:
    """Return the returned results as a list.

    Any iterable is taken, but no text, bytes or mapping. Raises ResultTypeError for anything else;
    an error of the iteration passes through.
    """
    if isinstance(returned, list):
        return returned
    if isinstance(returned, Awaitable):  # a future is iterable too, and yields nothing once done
        if inspect.iscoroutine(returned):
            returned.close()  # otherwise its "was never awaited" warning hides the real message
        raise ResultTypeError(
            f"{method} must return a list of results, got a {type(returned).__name__}: an `await` "
            "is missing"
        )
    if (
        returned is None
        or isinstance(returned, (str, bytes, bytearray, Mapping))
        or not isinstance(returned, Iterable)
    ):
        raise ResultTypeError(
            f"{method} must return a list of results ([] for none, [result] for one), got "
            f"{type(returned).__name__}"
        )
    return list(returned)


async def call_hook(function: Any, name: str, *arguments: Any) -> None:
    """Call open or close if the function has it, and await an awaitable result.

    Raises:
        RuntimeError: The hook raised CancelledError, but nobody cancelled its task.
    """
    hook = getattr(function, name, None)
    if hook is None:
        return
    try:
        returned = hook(*arguments)
        if isinstance(returned, Awaitable):
            await returned
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError(
            f"{type(function).__name__}.{name} awaited something that was cancelled"
        ) from error
