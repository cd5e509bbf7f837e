"""The virtual clock as the product sees it: the functions of `time`, the sources of randomness, and
asyncio's loops.
"""

import asyncio
import datetime as dt
import selectors
import socket
import uuid
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from tests.simulation.night_at_work import scheduler
from tests.simulation.processes import SimulatedThread
from tests.simulation.scheduler import EPOCH
from tests.simulation.threads import Future, ThreadPoolExecutor

CONNECTS_WITHIN = 0.02  # s


def monotonic() -> float:
    return scheduler().now


def time() -> float:
    """The time of day of the process that asks: its host's clock may have been set."""
    night = scheduler()
    return EPOCH + night.now + night.clock_offset


def utc_now() -> dt.datetime:
    return dt.datetime.fromtimestamp(time(), dt.UTC)


def monotonic_ns() -> int:
    return int(scheduler().now * 1e9)


def time_ns() -> int:
    return int(time() * 1e9)


def sleep(seconds: float) -> None:
    scheduler().sleep(seconds)


def token_hex(nbytes: int = 32) -> str:
    return f"{scheduler().token_bits(8 * nbytes):0{2 * nbytes}x}"


def randbits(k: int) -> int:
    return scheduler().token_bits(k)


def draw() -> float:
    return scheduler().jitter.random()


def uniform(a: float, b: float) -> float:
    return scheduler().jitter.uniform(a, b)


def uuid4() -> uuid.UUID:
    return uuid.UUID(int=scheduler().token_bits(128), version=4)


class _LoopSelector(selectors._BaseSelectorImpl):  # the only base without a file descriptor
    """Waits in the scheduler. Sockets of the loop are transports in memory, which call the loop
    back.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_woken = False
        self._thread: SimulatedThread | None = None

    def select(self, timeout: float | None = None) -> list[Any]:
        night = scheduler()
        self._thread = night.me()
        if timeout is not None and timeout <= 0:
            night.give_way()
        else:
            end = None if timeout is None else night.now + timeout
            while not self._is_woken and (end is None or night.now < end):
                night.block(None if end is None else end - night.now)
        self._is_woken = False
        return []

    def wake(self) -> None:
        self._is_woken = True
        if self._thread is not None:
            scheduler().wake(self._thread)


def run_coroutine_threadsafe(coroutine: Any, loop: asyncio.AbstractEventLoop) -> Future:
    """As asyncio's, with a future whose waits are the scheduler's."""
    future = Future()

    def begin() -> None:
        asyncio.futures._chain_future(asyncio.ensure_future(coroutine, loop=loop), future)  # type: ignore[attr-defined]

    loop.call_soon_threadsafe(begin)
    return future


class NumberedTask(asyncio.Task):  # type: ignore[type-arg]
    """A task whose place in a set does not depend on its address in memory."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._number = scheduler().next_number()
        super().__init__(*arguments, **named)

    def __hash__(self) -> int:
        return self._number


class Loop(asyncio.SelectorEventLoop):
    """A real event loop on the virtual clock."""

    def __init__(self) -> None:
        super().__init__(_LoopSelector())
        scheduler().me().process.loops.append(self)
        self.set_task_factory(
            lambda loop, coroutine, **named: NumberedTask(coroutine, loop=loop, **named)
        )

    def time(self) -> float:
        return scheduler().now

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        await asyncio.sleep(CONNECTS_WITHIN * scheduler().network.draws.random())

    async def create_connection(
        self, protocol_factory: Callable[[], Any], *arguments: Any, **named: Any
    ) -> Any:
        """A connection in memory to the vendor. The real socket, which never connected, is
        closed.
        """
        named["sock"].close()
        protocol = protocol_factory()
        transport = scheduler().network.connection(self, protocol)
        protocol.connection_made(transport)
        return transport, protocol

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> Any:
        if executor is None:
            executor = self._pool = getattr(self, "_pool", None) or ThreadPoolExecutor()
        return super().run_in_executor(executor, func, *args)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        night = scheduler()
        process = night.me().process
        night.fail(
            f"an event loop of {process}: {context.get('message')}: {context.get('exception')!r}"
        )

    def _make_self_pipe(self) -> None:
        self._internal_fds, self._ssock, self._csock = 0, None, None

    def _close_self_pipe(self) -> None:
        pass

    def _write_to_self(self) -> None:
        self._selector.wake()
