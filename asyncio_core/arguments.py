"""The arguments of an operator: its mode, and the checks before anything runs."""

import enum
import inspect
import math
from collections.abc import Callable, Hashable
from typing import Any

from asyncio_core.queues import (
    KeyOrderedStreamElementQueue,
    OrderedStreamElementQueue,
    StreamElementQueue,
    UnorderedStreamElementQueue,
)
from asyncio_core.retry import RetryStrategy


class OutputMode(enum.Enum):
    """The order of the output. In every mode no record crosses a watermark."""

    ORDERED = "ordered"  # the order of the input
    UNORDERED = "unordered"  # the order of completion
    KEY_ORDERED = "key_ordered"  # the order of the input among records of the same key


def queue_for(
    mode: OutputMode, capacity: int, key: Callable[[Any], Hashable] | None
) -> StreamElementQueue:
    """Return the queue of a mode. Raises ValueError if mode and key do not fit."""
    if mode is OutputMode.KEY_ORDERED:
        if key is None:
            raise ValueError("KEY_ORDERED needs key, a function that gives the key of a value")
        check_plain("key", key)
        return KeyOrderedStreamElementQueue(capacity, key)
    if key is not None:
        raise ValueError(f"key belongs to KEY_ORDERED; leave it out for {mode}")
    if mode is OutputMode.ORDERED:
        return OrderedStreamElementQueue(capacity)
    if mode is OutputMode.UNORDERED:
        return UnorderedStreamElementQueue(capacity)
    raise ValueError(f"mode must be a member of OutputMode, got {mode!r}")


def check_concurrency(concurrency: int | None, capacity: int) -> int:
    if concurrency is None:
        return capacity
    if (
        isinstance(concurrency, bool)
        or not isinstance(concurrency, int)
        or not 1 <= concurrency <= capacity
    ):
        raise ValueError(
            "concurrency is the number of calls that run at once, from 1 to capacity "
            f"({capacity}), got {concurrency!r}"
        )
    return concurrency


def check_timeout(timeout: float | None) -> None:
    if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
        raise ValueError(
            "timeout must be a finite number of seconds above 0, or None for no "
            f"limit, got {timeout!r}"
        )


def check_strategy(strategy: RetryStrategy) -> None:
    for name in ("can_retry", "delay", "on_result", "on_exception"):
        if not hasattr(strategy, name):
            raise TypeError(
                f"a retry strategy needs {name}; {strategy!r} has none. For no retry use NO_RETRY"
            )
        if getattr(strategy, name) is not None:
            check_plain(name, getattr(strategy, name))


def check_plain(name: str, function: Any) -> None:
    kinds = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
    if not callable(function) or any(
        kind(called) for kind in kinds for called in (function, function.__call__)
    ):
        raise TypeError(
            f"{name} must be a plain function (`def`, without `yield`), because nothing awaits its "
            f"result; got {function!r}"
        )
