"""The leases of a table on an object store: an object per day, rewritten by its run.

A killed run stops writing, and after `object_lock.EXPIRES` s another run takes the day. A run that
was paused for longer may no longer publish.
"""

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.declare.finding.extras import require_extra
from jobs.errors import DayTaken, DeclarationError, PublishConflict, TidegateError
from jobs.storage import object_lock, objects
from jobs.storage.object_lock import EXPIRES, LockLost, LockTaken, ObjectLock, content
from jobs.storage.stored_files import unreachable_or
from jobs.storage.urls import below
from jobs.wording import one_line

FOLDER = "_leases"  # readers of tables ignore names that begin with _
SKEW = 60.0  # s by which the clock of the store may differ from ours


@dataclass(frozen=True)
class StoreLease:
    """A lease of a table on an object store."""

    day: str
    run_id: str
    lock: ObjectLock
    file: None = None

    @property
    def before(self) -> str:
        return str(self.lock.before.get("run_id", ""))

    def confirm(self) -> None:
        """Renew the lease. Raises PublishConflict if another run took the day, and OSError."""
        try:
            self.lock.confirm()
        except LockLost as lost:
            raise PublishConflict(
                f"run {lost.holder.get('run_id', 'nobody')} holds the lease of {self.day} now; "
                f"this run, {self.run_id}, lost it."
            ) from None

    def keep(self) -> None:
        """Hold the day until this process has ended and the lease has expired."""
        self.lock.outlives_body = True


@contextlib.contextmanager
def leased(table: str, day: str, own: Mapping[str, Any], *, wait: float) -> Iterator[StoreLease]:
    """Hold the day while the body runs.

    Args:
        table: The URL of the published table.
        day: The day.
        own: The facts of this run, which another run reads if it finds the day taken.
        wait: Seconds to wait for another holder.

    Raises:
        DayTaken: Another run holds the day.
        DeclarationError: The store refuses.
        RunStopped: The store does not answer.
    """
    require_extra("s3", f"output: {table}")
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(
                object_lock.held(below(table, FOLDER, f"{day}.json"), own, wait=wait)
            )
        except LockTaken as taken:
            raise DayTaken(
                f"{day} is being run by {holder_named(taken.holder)}; nothing was started."
            ) from None
        except OSError as error:
            kind = unreachable_or(DeclarationError, error)
            raise kind(
                f"output: {table} cannot be written: {error}. Nothing was called."
            ) from error
        yield StoreLease(day, str(own["run_id"]), lock)


def holder_named(holder: Mapping[str, Any]) -> str:
    """Return the holder of a lease in a sentence. Content of another program names nobody."""
    if not {"run_id", "pid", "host", "since"} <= holder.keys():
        return "another run"
    return one_line("run {run_id} (process {pid} on {host}, since {since})".format_map(holder))


def unknown_run(day: str) -> str:
    """Return a distinct run id for a lease that names no run, so that its day counts as taken."""
    return f"unknown run of {day}"


def at_work(
    table: str, now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
) -> dict[str, str]:
    """Return the runs that may hold a day now: run id -> day. A killed run counts for EXPIRES +
    SKEW s. Raises TidegateError if a lease cannot be read.
    """
    since = now() - dt.timedelta(seconds=EXPIRES + SKEW)
    held = (
        (day, holder) for day, holder in _leases(table, since) if object_lock.ENDED not in holder
    )
    return {str(holder.get("run_id") or unknown_run(day)): day for day, holder in held}


def last_runs(table: str) -> dict[str, str]:
    """Return the current or last run of each day: day -> run id. Raises TidegateError."""
    return {day: str(holder.get("run_id", "")) for day, holder in _leases(table)}


def _leases(table: str, since: dt.datetime | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield day and content of each lease, or only of leases changed since then."""
    folder = below(table, FOLDER)
    try:
        for listed in objects.listed(folder):
            if since is None or listed.changed >= since:
                yield (
                    listed.name.removesuffix(".json"),
                    content(objects.read(below(folder, listed.name))),
                )
    except OSError as error:
        raise TidegateError(
            f"leases {folder} cannot be read: {error}. Nothing was changed; start again when they "
            "can be."
        ) from error
