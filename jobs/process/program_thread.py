"""Runs the program of a day in a thread of the command, which then imports everything once."""

import contextlib
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jobs.run import enrich_day
from jobs.tables.leases.day_leases import Lease

# waits so many s, or to the end; returns the exit status, None while it runs
WaitForEnd = Callable[[float | None], int | None]
CRASHED = 70  # exit status of a program that raised


@contextlib.contextmanager
def started_in_thread(
    arguments: Sequence[str], log: Path, leases: Sequence[Lease]
) -> Iterator[WaitForEnd]:
    """Start the program, which writes to the file `log`. Yields the function that waits for it.

    If the body raises, as for Ctrl-C, the program ends with this process, as by a kill; until then
    it holds the leases.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    ended = [CRASHED]
    files = [os.dup(lease.file) for lease in leases if lease.file is not None]

    def run() -> None:
        try:
            ended[:] = [enrich_day.main([*arguments, "--log", str(log)])]
        except Exception:  # noqa: BLE001  # such as of a full disk
            with contextlib.suppress(OSError), log.open("a", encoding="utf-8") as words:
                traceback.print_exc(file=words)
        finally:
            for file in files:
                os.close(file)

    # a daemon: an interrupted command does not wait for it
    program = threading.Thread(target=run, name="tidegate-day", daemon=True)
    program.start()

    def wait(seconds: float | None) -> int | None:
        program.join(seconds)
        return None if program.is_alive() else ended[0]

    with kept_at_work(leases, wait):
        yield wait
        program.join()


@contextlib.contextmanager
def kept_at_work(leases: Sequence[Lease], wait: WaitForEnd) -> Iterator[None]:
    """Keep the leases if the body raises, as for Ctrl-C, while the program is still at work."""
    try:
        yield
    except BaseException:
        if wait(0) is None:
            for lease in leases:
                lease.keep()
        raise
