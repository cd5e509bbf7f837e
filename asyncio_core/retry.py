"""Decides when a call is repeated, and after how long. Plain arithmetic: the operator waits."""

import math
import random as random_module
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

OnResult = Callable[[list[Any]], bool]
OnException = Callable[[Exception], bool]


class Uniform(Protocol):
    """The interface of a random source for jitter, such as random.Random."""

    def uniform(self, a: float, b: float) -> float: ...


class RetryStrategy(Protocol):
    """Which outcomes of a call are retried, how often, and after which delay.

    `attempts` is the number of calls made so far for the record, including the call that just
    finished. A predicate that is None never retries. If a predicate, can_retry or delay raises, the
    operator fails.
    """

    @property
    def on_result(self) -> OnResult | None: ...

    @property
    def on_exception(self) -> OnException | None: ...

    def can_retry(self, attempts: int) -> bool: ...

    def delay(self, attempts: int) -> float:
        """Return the delay before the next attempt; it depends only on its argument (and on
        chance).

        Args:
            attempts: Calls made so far for the record.

        Returns:
            Seconds from the end of this attempt to the start of the next.
        """


@dataclass(frozen=True, slots=True)
class _Backoff:
    max_retries: int
    initial_delay: float
    max_delay: float
    multiplier: float
    jitter: float
    random: Uniform | None  # None: the module, which no pickle holds
    on_result: OnResult | None
    on_exception: OnException | None

    def can_retry(self, attempts: int) -> bool:
        return attempts <= self.max_retries

    def delay(self, attempts: int) -> float:
        seconds = self.initial_delay  # Flink caps only the delays after the first
        if attempts > 1:
            try:
                seconds = min(
                    self.initial_delay * self.multiplier ** (attempts - 1), self.max_delay
                )
            except OverflowError:
                seconds = self.max_delay
        chance = random_module if self.random is None else self.random
        return seconds * chance.uniform(1.0, 1.0 + self.jitter) if self.jitter else seconds


NO_RETRY: Final[RetryStrategy] = _Backoff(0, 0.0, 0.0, 1.0, 0.0, None, None, None)
"""Every call is the only one."""


def fixed_delay(
    *,
    max_retries: int,
    delay: float,
    on_result: OnResult | None = None,
    on_exception: OnException | None = None,
) -> RetryStrategy:
    """Wait equally long before each further call.

    Args:
        max_retries: Most calls after the first, at least 1.
        delay: Seconds, over 0.
        on_result: Whether a list of results is retried.
        on_exception: Whether an exception is retried. At least one of the two is required.

    Returns:
        The strategy.

    Raises:
        ValueError: A number is wrong, or there is no predicate.
    """
    _check_positive("delay", delay)
    return exponential_backoff(
        max_retries=max_retries,
        initial_delay=delay,
        max_delay=delay,
        multiplier=1.0,
        on_result=on_result,
        on_exception=on_exception,
    )


def exponential_backoff(
    *,
    max_retries: int,
    initial_delay: float,
    max_delay: float,
    multiplier: float,
    jitter: float = 0.0,
    random: Uniform | None = None,
    on_result: OnResult | None = None,
    on_exception: OnException | None = None,
) -> RetryStrategy:
    """Wait longer before each further call of a record; records do not share the growth.

    The n-th wait is initial_delay * multiplier ** (n - 1) seconds, from the second on at most
    max_delay, times a number drawn from `random` between 1 and 1 + jitter, so that records that
    failed together are not retried together.

    Args:
        max_retries: Most calls after the first, at least 1.
        initial_delay: Seconds before the second call, over 0.
        max_delay: Most seconds before any call after the second, without the jitter.
        multiplier: Growth of the wait, over 0.
        jitter: Largest relative lengthening of a wait, 0 or more.
        random: Source of chance; None: the module `random`.
        on_result: Whether a list of results is retried.
        on_exception: Whether an exception is retried. At least one of the two is required.

    Returns:
        The strategy.

    Raises:
        ValueError: A number is wrong, or there is no predicate.
    """
    _check_retries(max_retries, on_result, on_exception)
    _check_positive("initial_delay", initial_delay)
    _check_positive("max_delay", max_delay)
    _check_positive("multiplier", multiplier)
    if not (math.isfinite(jitter) and jitter >= 0):
        raise ValueError(
            f"jitter is the largest relative lengthening of a delay, 0 or more, got {jitter!r}"
        )
    return _Backoff(
        max_retries, initial_delay, max_delay, multiplier, jitter, random, on_result, on_exception
    )


def _check_retries(
    max_retries: int, on_result: OnResult | None, on_exception: OnException | None
) -> None:
    if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 1:
        raise ValueError(
            f"max_retries counts the calls after the first, at least 1, got {max_retries!r}; for "
            "none use NO_RETRY"
        )
    if on_result is None and on_exception is None:
        raise ValueError(
            "a retry strategy needs on_result or on_exception, else it never retries; use NO_RETRY"
        )


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
