"""Locks an open file: a wait for another process is logged, and has an end."""

import fcntl
import logging
import time
from collections.abc import Callable
from pathlib import Path

WAIT = 600.0  # s
LOOK_EVERY = 0.05  # s
SAY_EVERY = 60.0  # s

_log = logging.getLogger("tidegate.storage")


def lock_file(
    file: int,
    path: Path,
    *,
    wait: float = WAIT,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Lock a file until it is closed. A killed process holds no lock.

    Args:
        file: The open file.
        path: Its path, for messages.
        wait: Longest wait in seconds.
        clock: Returns monotonic seconds.
        sleep: Waits for some seconds.

    Raises:
        TimeoutError: Another process still holds the lock after `wait` s.
    """
    began = clock()
    say_at = began + SAY_EVERY
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            now = clock()
        else:
            return
        if now - began >= wait:
            raise TimeoutError(
                f"another process has held {path} for {wait:g} s; `fuser {path}` names it"
            )
        if now >= say_at:
            _log.warning("waits for another process, which holds %s", path)
            say_at = now + SAY_EVERY
        sleep(LOOK_EVERY)
