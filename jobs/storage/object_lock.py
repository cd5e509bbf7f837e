"""A lock that is an object of a store.

Its holder rewrites the object every BEAT s, on condition that no other process did. A waiting
process takes the lock when the object has not changed for EXPIRES s.

These seconds are by the waiting process's clock, so the clocks of two machines may differ by any
amount. A holder that was paused for longer learns from `confirm` that it has lost the lock.
"""

import contextlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jobs.storage import objects
from jobs.storage.file_lock import SAY_EVERY
from jobs.storage.objects import Changed, ReadObject, Tag

BEAT = 5.0  # s between two writes of the holder
EXPIRES = 20.0  # s without a write, after which another process may take the lock
# s until a waiting process's second look, and the longest time between two looks
LOOK_AGAIN, LOOK_EVERY = 0.1, 1.0
ENDED = "ended"

_log = logging.getLogger("tidegate.storage")


class LockTaken(TimeoutError):  # noqa: N818  # nothing is wrong: the other is at work
    """Another process holds the lock, and held it during the whole wait."""

    def __init__(self, place: str, holder: Mapping[str, Any], wait: float) -> None:
        who = "process {pid} on {host}".format_map({"pid": "?", "host": "?"} | dict(holder))
        super().__init__(f"{who} has held {place} for {wait:g} s")
        self.holder = holder


class LockLost(Exception):  # noqa: N818  # what happened
    """Another process took the lock."""

    def __init__(self, holder: Mapping[str, Any]) -> None:
        super().__init__(holder)
        self.holder = holder


class ObjectLock:
    """A held lock.

    Attributes:
        before: What its previous holder wrote; empty without a previous holder.
        outlives_body: Whether it stays held after the body of `held`, for as long as this process
            lives.
    """

    def __init__(self, place: str, about: Mapping[str, Any], token: str) -> None:
        self.place = place
        self.before: Mapping[str, Any] = {}
        self.outlives_body = False
        self._about = {**about, "token": token}
        self._beats = 0
        self._tag: Tag = {}
        self._writing = threading.Lock()

    def confirm(self) -> None:
        """Rewrite the object. Raises LockLost if another process took the lock, and OSError."""
        with self._writing:
            self._write_over()

    def take(
        self,
        wait: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take the lock once it is free. Raises LockTaken after `wait` s, and OSError."""
        deadline = clock() + wait
        seen, since, pause = None, clock(), LOOK_AGAIN
        say_at = since + SAY_EVERY
        while True:
            lock = objects.read(self.place)
            if lock is not None and lock.tag != seen:
                seen, since = lock.tag, clock()
            if self._is_free(lock, clock() - since) and self._took(lock):
                return
            if clock() >= deadline:
                raise LockTaken(self.place, content(lock), wait)
            if clock() >= say_at:
                _log.warning("waits for another process, which holds %s", self.place)
                say_at = clock() + SAY_EVERY
            sleep(pause)
            pause = min(2 * pause, LOOK_EVERY)

    def release(self) -> None:
        """Free the lock. A store that does not answer is no error: the lock expires."""
        with self._writing, contextlib.suppress(OSError, LockLost):
            self._about[ENDED] = True
            self._write_over()

    def _is_free(self, lock: ReadObject | None, unchanged: float) -> bool:
        return lock is None or ENDED in content(lock) or unchanged >= EXPIRES

    def _took(self, lock: ReadObject | None) -> bool:
        try:
            if lock is None:
                self._tag = objects.create(self.place, self._content())
            else:
                self._tag = objects.replace(self.place, self._content(), lock.tag)
        except Changed:
            return self._is_own()
        finally:
            self.before = content(lock)
        return True

    def _write_over(self) -> None:
        try:
            self._tag = objects.replace(self.place, self._content(), self._tag)
        except Changed:
            if not self._is_own():
                raise LockLost(content(objects.read(self.place))) from None

    def _is_own(self) -> bool:
        """Return whether the object is ours despite the refusal: an earlier answer was lost."""
        lock = objects.read(self.place)
        if lock is None or content(lock).get("token") != self._about["token"]:
            return False
        self._tag = lock.tag
        return True

    def _content(self) -> bytes:
        self._beats += 1
        return json.dumps({**self._about, "beat": self._beats}).encode()


def content(lock: ReadObject | None) -> dict[str, Any]:
    """Return what the holder wrote; empty without an object, and for a foreign object."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(lock.data) if lock is not None else {}
        return found if isinstance(found, dict) else {}
    return {}


@contextlib.contextmanager
def held(
    place: str,
    about: Mapping[str, Any],
    *,
    wait: float,
    token: Callable[[int], str] = secrets.token_hex,
) -> Iterator[ObjectLock]:
    """Hold the lock while the body runs.

    Args:
        place: The object's URL.
        about: Facts about the holder, for other processes.
        wait: Longest wait in seconds.
        token: Makes a random text.

    Raises:
        LockTaken: Another process still holds the lock after `wait` s.
        OSError: The store fails.
    """
    lock = ObjectLock(place, about, token(8))
    lock.take(wait)
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(lock, ended), name="tidegate-lease", daemon=True)
    beating.start()
    try:
        yield lock
    finally:
        if not lock.outlives_body:
            ended.set()
            lock.release()


def _beat(lock: ObjectLock, ended: threading.Event) -> None:
    while not ended.wait(BEAT):
        with contextlib.suppress(OSError):  # the next beat may reach the store
            try:
                lock.confirm()
            except LockLost:
                return
