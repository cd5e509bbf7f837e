"""Lookups by users' functions."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from jobs.declare.limits.rates import Rate, check_rates
from jobs.declare.lookup import Lookup
from jobs.declare.services import Outage, require_concurrency
from jobs.declare.values.fingerprint import NOT_IN_FINGERPRINT
from jobs.errors import DeclarationError


class Asked(Protocol):
    """An AsyncFunction of any library, or an object like it: users' classes need no base class."""

    def async_invoke(self, value: Any, /) -> Awaitable[Sequence[Any]]: ...


@dataclass(frozen=True, kw_only=True)
class AsyncFunctionLookup(Lookup):
    """A lookup by an AsyncFunction: `async_invoke(keys: dict) -> list[dict]`, as in Flink.

    Attributes:
        function: A factory of the AsyncFunction, such as its class, called once per partition; it
            must be importable on the executors. An empty list is a miss, a list of one dict is the
            answer, a longer list is an error. An exception is retried and then an error.
        max_concurrency: Calls in flight over all tasks of a run.
        rate: At most so many calls in any period; a list of Rate.
        outage: When the outside system counts as down.
    """

    function: Callable[[], Asked]
    max_concurrency: int
    rate: Sequence[Rate] = field(default=(), metadata=NOT_IN_FINGERPRINT)
    outage: Outage = field(default_factory=Outage)

    kind = "function"

    def _check(self) -> None:
        super()._check()
        require_concurrency("function", self.max_concurrency)
        check_rates("function", self.rate)
        makes = callable(self.function) and not inspect.iscoroutinefunction(self.function)
        is_class = isinstance(self.function, type)
        if not makes or (is_class and not callable(getattr(self.function, "async_invoke", None))):
            raise DeclarationError(
                f"function is {self.function!r}; it must be a class with `async def "
                "async_invoke(self, value)`, or what makes such an object without arguments. A "
                "coroutine is a lookup by @lookup."
            )

    def request_facts(self) -> dict[str, Any]:
        return super().request_facts() | {"function": self.function}
