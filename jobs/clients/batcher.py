"""Collects keys into requests: callers wait until a batch is full or its time is over."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from jobs.clients.client import CallFailed, NotSent, Send, Throttled
from jobs.clients.request_counter import RequestCounts
from jobs.declare.lookup import Key
from jobs.errors import TidegateError

EARLY = 1e-4  # s; tolerance for a timer that fires early
TURNS = 2  # turns of the loop until the next request is sent: aiohttp writes it in its own task
REMEMBERED = 10_000  # keys without an answer, to recognize repeated requests


class BatchRefused(CallFailed):
    """The service refused a batch, possibly for one of its items: it is sent again in halves."""


class _Item:
    """A key and its waiter. Once sent, it stays in its request, even without a waiter."""

    __slots__ = ("due", "key", "outcome", "request")

    def __init__(self, key: Key, due: float) -> None:
        self.key = key
        self.due = due  # on the loop's clock: when it stops waiting for other keys
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.request: _Request | None = None


class _Request:
    __slots__ = ("items", "task")

    def __init__(self, items: list[_Item]) -> None:
        self.items = items
        self.task: asyncio.Task[None]


class Batching:
    """Sends keys in batches and returns each key's outcome. Bound to one event loop.

    When a request ends, the next request leaves before the callers of the ended request continue,
    which takes a while for hundreds of keys. If a caller is cancelled before its request leaves,
    its key is removed; later the key stays in the request, which is cancelled only when no caller
    waits for any of its items.

    Args:
        send: Sends keys, some of which may be equal, in one request, and returns an outcome per key
            in order: an answer, None for a miss, or the key's exception. If `send` raises, the
            exception applies to every key; after BatchRefused, the batch is sent again in halves,
            until the bad item is alone and gets the refusal.
        max_items: Highest number of keys in a request.
        max_wait: Longest time in seconds that a key waits for others.
        max_requests: Highest number of requests in flight.
    """

    def __init__(self, send: Send, *, max_items: int, max_wait: float, max_requests: int) -> None:
        self._send = send
        self._max_items = max_items
        self._max_wait = max_wait
        self._max_requests = max_requests
        # in order of arrival; a cancelled item is removed at once
        self._waiting: dict[_Item, None] = {}
        self._halves: deque[list[_Item]] = deque()  # of refused batches; they leave first
        self._requests: set[_Request] = set()  # with unsettled items
        self._at_service: set[_Request] = set()
        self._closed_until = 0.0  # by the loop's time: the end of throttling
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._unanswered: dict[str, None] = {}
        self.sent = 0  # requests so far
        self.repeated = 0  # requests with a key that got no answer before

    def has_sent(self, key: Key) -> bool:
        """Return whether no call of this key waits to be sent."""
        return all(item.key != key for item in chain(self._waiting, *self._halves))

    def allow(self, requests: int) -> None:
        """Set the highest number of requests in flight; requests above it finish normally."""
        self._max_requests = requests
        if self._waiting or self._halves:
            self._send_what_is_due()

    def send_by(self, way: Callable[[Send, Sequence[Key]], Awaitable[Sequence[Any]]]) -> None:
        """Send each request through `way` from now on, around earlier ways."""
        self._send = partial(way, self._send)

    def leaving(self) -> int:
        """Return the number of requests without a waiting caller, which are being cancelled."""
        return sum(
            all(item.outcome.done() for item in request.items) for request in self._at_service
        )

    async def call(self, key: Key) -> Any | None:
        """Return the key's answer, or None for a miss.

        Raises CallFailed, Throttled, RunStopped; RuntimeError after `close`.
        """
        if self._closed:
            raise RuntimeError("no request leaves after close")
        item = _Item(key, asyncio.get_running_loop().time() + self._max_wait)
        self._waiting[item] = None
        if self._timer is None or len(self._waiting) >= self._max_items:
            self._send_what_is_due()
        try:
            return await item.outcome
        finally:
            if item.outcome.cancelled():
                self._left(item)

    async def close(self) -> None:
        """Cancel the requests in flight, wait for their end, and cancel remaining callers."""
        self._closed = True
        self._set_timer(None)
        requests = [request.task for request in self._requests]
        for items in (
            [*self._waiting],
            *self._halves,
            *(request.items for request in self._requests),
        ):
            for item in items:
                item.outcome.cancel()
        self._waiting.clear()
        self._halves.clear()
        for task in requests:
            task.cancel()
        if requests:
            await asyncio.wait(requests)

    def _send_what_is_due(self) -> None:
        """Send every request that may leave now, and set a timer for the next request."""
        self._set_timer(None)
        now = asyncio.get_running_loop().time() + EARLY
        while not self._closed and len(self._at_service) < self._max_requests:
            if now < self._closed_until:
                self._set_timer(self._closed_until)
                return
            items = self._next_batch(now)
            if items is None:
                self._set_timer(next(iter(self._waiting)).due if self._waiting else None)
                return
            self._start(items)

    def _next_batch(self, now: float) -> list[_Item] | None:
        while self._halves:
            half = [item for item in self._halves.popleft() if not item.outcome.done()]
            if half:
                return half
        full = len(self._waiting) >= self._max_items
        if not full and not (self._waiting and next(iter(self._waiting)).due <= now):
            return None
        items = list(islice(self._waiting, self._max_items))
        for item in items:
            del self._waiting[item]
        return items

    def _set_timer(self, when: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = None if when is None else loop.call_at(when, self._send_what_is_due)

    def _start(self, items: list[_Item]) -> None:
        request = _Request(items)
        request.task = asyncio.get_running_loop().create_task(
            self._ask(request), name="tidegate batch"
        )
        for item in items:
            item.request = request
        self.sent += 1
        self._requests.add(request)
        self._at_service.add(request)
        request.task.add_done_callback(partial(self._ended, request))

    async def _ask(self, request: _Request) -> None:
        items = request.items
        try:
            outcomes = await self._send([item.key for item in items])
        except BatchRefused as refused:
            if len(items) > 1:
                middle = len(items) // 2
                self._halves.extend((items[:middle], items[middle:]))
                self._note_sent(items, items)
                return
            outcomes = [refused]
        except Exception as error:  # noqa: BLE001  # each waiting caller raises it
            outcomes = [error] * len(items)
        if len(outcomes) != len(items):
            wrong = TidegateError(
                f"a batch of {len(items)} keys came back with {len(outcomes)} outcomes."
            )
            outcomes = [wrong] * len(items)
        judged = zip(items, outcomes, strict=True)
        failed = {item: outcome for item, outcome in judged if isinstance(outcome, Exception)}
        if not any(isinstance(error, NotSent) for error in failed.values()):
            self._note_sent(items, failed)
        self._closed_until = max(self._closed_until, _closed_until(failed.values()))
        # such an error ends the run
        if not any(isinstance(error, TidegateError) for error in failed.values()):
            await self._let_next_go(request)
        for item, outcome in zip(items, outcomes, strict=True):
            self._settle(item, outcome)

    def _note_sent(self, items: Sequence[_Item], unanswered: Iterable[_Item]) -> None:
        """Count a request that asked a key again, and remember its keys without an answer."""
        before = len(self._unanswered)
        for item in items if before else ():
            self._unanswered.pop(repr(item.key), None)
        self.repeated += len(self._unanswered) < before
        for item in unanswered:
            self._unanswered[repr(item.key)] = None
        while len(self._unanswered) > REMEMBERED:
            del self._unanswered[next(iter(self._unanswered))]

    async def _let_next_go(self, request: _Request) -> None:
        sent = self.sent
        self._at_service.discard(request)
        self._send_what_is_due()
        for _ in range(TURNS if self.sent > sent else 0):
            await asyncio.sleep(0)

    def _settle(self, item: _Item, outcome: Any) -> None:
        if item.outcome.done():  # its caller was cancelled
            return
        if isinstance(outcome, BaseException):
            item.outcome.set_exception(outcome)
        else:
            item.outcome.set_result(outcome)

    def _ended(self, request: _Request, task: asyncio.Task[None]) -> None:
        failure: BaseException | None = CallFailed("the request was cancelled", passing=True)
        if not task.cancelled():
            failure = task.exception()  # of outcomes that no caller can get, such as None for all
        elif request in self._at_service:  # else it is noted, and has let the next request go
            self._note_sent(request.items, request.items)
        self._requests.discard(request)
        self._at_service.discard(request)
        for item in request.items if failure else ():
            self._settle(item, failure)
        self._send_what_is_due()

    def _left(self, item: _Item) -> None:
        """Remove a cancelled caller's item from the queue, or cancel a request without callers."""
        if item in self._waiting:
            del self._waiting[item]
        elif item.request is not None and all(other.outcome.done() for other in item.request.items):
            item.request.task.cancel("nobody waits for any of its items")


class BatchingClient:
    """The base of clients whose requests may have several keys.

    Attributes:
        batching: Collects keys into requests; None if each call is a request.
    """

    batching: Batching | None
    _counts: RequestCounts

    async def close_batching(self) -> None:
        """End the requests in flight, and count requests that repeated a key."""
        if self.batching is not None:
            await self.batching.close()
            self._counts.repeated += self.batching.repeated


def batching_in(client: object) -> Batching | None:
    """Return what collects a client's keys into requests; None if each call is a request."""
    return client.batching if isinstance(client, BatchingClient) else None


def _closed_until(errors: Iterable[Exception]) -> float:
    """Return the loop's time at which requests may leave again after the items' throttling."""
    pauses = [error.seconds for error in errors if isinstance(error, Throttled)]
    return asyncio.get_running_loop().time() + max(pauses) if pauses else 0.0
