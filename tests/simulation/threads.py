"""Threads, locks, queues and pools of the simulation, with the interfaces of the standard
library's.
"""

import concurrent.futures
import queue
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from tests.simulation.night_at_work import scheduler
from tests.simulation.processes import SimulatedThread, State, current


class _Waiting:
    """Threads that wait for something to change."""

    def __init__(self) -> None:
        self._threads: list[SimulatedThread] = []

    def until(self, is_over: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until it is over (True), or for so long (False)."""
        night = scheduler()
        end = None if timeout is None or timeout < 0 else night.now + timeout
        while not is_over():
            if end is not None and night.now >= end:
                return False
            self._threads.append(night.me())
            night.block(None if end is None else end - night.now)
        return True

    def wake_all(self) -> None:
        threads, self._threads = self._threads, []
        for thread in threads:
            scheduler().wake(thread)


class Thread:
    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self.name, self.daemon = name or "thread", daemon
        self._thread = SimulatedThread(self.name, scheduler().me().process)

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def start(self) -> None:
        scheduler().start(self._thread, self.run)
        scheduler().give_way()

    @property
    def ident(self) -> int | None:
        return self._thread.number or None

    def is_alive(self) -> bool:
        return self._thread.state not in (State.NEW, State.DONE)

    def join(self, timeout: float | None = None) -> None:
        night = scheduler()
        end = None if timeout is None else night.now + timeout
        while self._thread.state is not State.DONE:
            if end is not None and night.now >= end:
                return
            self._thread.joining.append(night.me())
            night.block(None if end is None else end - night.now)


class Lock:
    def __init__(self) -> None:
        self._holder: SimulatedThread | None = None
        self._waiting = _Waiting()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002  # threading's
        night = scheduler()
        night.give_way()
        if not self._waiting.until(lambda: self._holder is None, timeout if blocking else 0):
            return False
        self._holder = night.me()
        return True

    def release(self) -> None:
        self._holder = None
        self._waiting.wake_all()

    def locked(self) -> bool:
        return self._holder is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    def __init__(self) -> None:
        super().__init__()
        self._times = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002
        if self._holder is not current() and not super().acquire(blocking, timeout):
            return False
        self._times += 1
        return True

    def release(self) -> None:
        self._times -= 1
        if not self._times:
            super().release()


class Condition:
    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock or RLock()
        self._threads: list[SimulatedThread] = []
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        night = scheduler()
        me = night.me()
        self._threads.append(me)
        self._lock.release()
        # a killed thread ends here: its process's locks concern nobody
        woken = night.block(timeout)
        if me in self._threads:
            self._threads.remove(me)
        self._lock.acquire()
        return woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        night = scheduler()
        end = None if timeout is None else night.now + timeout
        while not (result := predicate()):
            left = None if end is None else end - night.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        for thread in self._threads[:n]:
            scheduler().wake(thread)
        del self._threads[:n]

    def notify_all(self) -> None:
        self.notify(len(self._threads))


class Event:
    def __init__(self) -> None:
        self._is_set = False
        self._waiting = _Waiting()

    def is_set(self) -> bool:
        return self._is_set

    def set_now(self) -> None:
        """Set it without a step, as from a timer."""
        self._is_set = True
        self._waiting.wake_all()

    def set(self) -> None:
        self.set_now()
        scheduler().give_way()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        scheduler().give_way()
        return self._waiting.until(self.is_set, timeout)


class SimpleQueue:
    """queue.SimpleQueue, and queue.Queue without a size."""

    def __init__(self, maxsize: int = 0) -> None:
        assert not maxsize, "a bounded queue is not simulated"
        self._items: deque[Any] = deque()
        self._waiting = _Waiting()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:  # noqa: FBT001, FBT002
        self._items.append(item)
        self._waiting.wake_all()
        scheduler().give_way()

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: FBT001, FBT002
        scheduler().give_way()
        if not self._waiting.until(lambda: bool(self._items), timeout if block else 0):
            raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class Future(concurrent.futures.Future):  # type: ignore[type-arg]
    """A future whose waits are the scheduler's."""

    def result(self, timeout: float | None = None) -> Any:
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        if not self.done():
            waiting = _Waiting()
            self.add_done_callback(lambda _: waiting.wake_all())
            waiting.until(self.done, timeout)


class ThreadPoolExecutor(concurrent.futures.Executor):
    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        assert initializer is None, "an initializer is not simulated"
        self._most, self._name = max_workers or 4, thread_name_prefix or "pool"
        self._work = SimpleQueue()
        self._threads: list[Thread] = []
        self._idle = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        future = Future()
        self._work.put((future, fn, args, kwargs))
        if not self._idle and len(self._threads) < self._most:
            self._threads.append(Thread(target=self._serve, name=self._name))
            self._threads[-1].start()
        return future

    def _serve(self) -> None:
        while True:
            self._idle += 1
            item = self._work.get()
            self._idle -= 1
            if item is None:
                return
            future, function, arguments, named = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = function(*arguments, **named)
            except Exception as error:  # noqa: BLE001  # the one who waits raises it
                future.set_exception(error)
            else:
                future.set_result(result)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        while cancel_futures and not self._work.empty():
            if (item := self._work.get_nowait()) is not None:
                item[0].cancel()
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.shutdown()
