"""An async function that follows a script by record and attempt, and records its calls."""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asyncio_core.function import AsyncFunction


@dataclass(frozen=True, slots=True)
class Reply:
    """Return the results `after` this many seconds; 0 does not suspend."""

    results: Any
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Fail:
    """Raise the error `after` this many seconds."""

    error: BaseException
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Hang:
    """Never return. With `clings`, swallow a cancellation and return [] after so many seconds."""

    clings: float = 0.0


Step = Reply | Fail | Hang


@dataclass(slots=True)
class Call:
    """A call: its start and end on the loop's clock, and whether it was cancelled."""

    value: Any
    attempt: int
    started: float
    ended: float | None = None
    cancelled: bool = False


@dataclass
class ScriptedFunction(AsyncFunction[Any, Any]):
    """Follows the script for each value, attempt by attempt.

    Attributes:
        script: A mapping from value to a Step or a list of Steps, one per attempt, whose last Step
            is repeated; or a function of (value, attempt) that returns a Step. A value that the
            mapping lacks returns [value] at once.
        timeouts: A mapping from value to the result of timeout(), or to an exception that it
            raises; without an entry timeout() raises TimeoutError, the default.
        calls: Every call, in the order of their starts.
        timed_out: The values of the calls of timeout().
        running: The number of calls that run now.
        peak: The highest number of concurrent calls.
        opened: The number of calls of open.
        closed: The number of calls of close.
    """

    script: Mapping[Any, Step | Sequence[Step]] | Callable[[Any, int], Step] = field(
        default_factory=dict
    )
    timeouts: Mapping[Any, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list, init=False)
    timed_out: list[Any] = field(default_factory=list, init=False)
    running: int = field(default=0, init=False)
    peak: int = field(default=0, init=False)
    opened: int = field(default=0, init=False)
    closed: int = field(default=0, init=False)
    _attempts: Counter[Hashable] = field(default_factory=Counter, init=False)

    def open(self, runtime_context: Any) -> None:  # noqa: ARG002 - the signature of AsyncFunction
        self.opened += 1

    def close(self) -> None:
        self.closed += 1

    async def async_invoke(self, value: Any) -> list[Any]:
        loop = asyncio.get_running_loop()
        self._attempts[value] += 1
        call = Call(value, self._attempts[value], loop.time())
        self.calls.append(call)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            return await self._play(self._step(value, call.attempt))  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            call.cancelled = True
            raise
        finally:
            self.running -= 1
            call.ended = loop.time()

    def timeout(self, value: Any) -> list[Any]:
        self.timed_out.append(value)
        if value not in self.timeouts:
            return super().timeout(value)
        answer = self.timeouts[value]
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    def _step(self, value: Any, attempt: int) -> Step:
        if not isinstance(self.script, Mapping):
            return self.script(value, attempt)
        steps = self.script.get(value, Reply([value]))
        if isinstance(steps, (Reply, Fail, Hang)):
            return steps
        return steps[min(attempt, len(steps)) - 1]

    async def _play(self, step: Step) -> Any:
        if isinstance(step, Hang):
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                if not step.clings:
                    raise
                await asyncio.sleep(step.clings)
            return []
        if step.after:
            await asyncio.sleep(step.after)
        if isinstance(step, Fail):
            raise step.error
        return step.results
