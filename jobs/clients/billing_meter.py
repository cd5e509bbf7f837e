"""Counts on disk what services bill to a task, before each request leaves.

Each attempt of a task has a file. It has a line of fixed length for each lookup, unit and day,
whose count is overwritten. That costs about a microsecond, and a write that has returned survives
the kill of its process.
"""

import contextlib
import datetime as dt
import json
import os
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobs.errors import TidegateError

DIGITS = 20
SUFFIX = ".meter"


@dataclass(frozen=True)
class Meters:
    """The place where the tasks of a run count.

    Attributes:
        folder: A folder that only this run uses.
        units: By lookup with a price, the units that are billed.
        run_id: The run's id.
        started_at: When the run began, ISO 8601.
    """

    folder: str
    units: Mapping[str, Collection[str]] = field(default_factory=dict)
    run_id: str = ""
    started_at: str = ""

    def run_began(self) -> dt.datetime:
        """Return when the run began."""
        return dt.datetime.fromisoformat(self.started_at)

    def open(self, token: Callable[[int], str] = secrets.token_hex) -> "BillingMeter":
        """Return a meter for an attempt of a task. Raises TidegateError if it cannot be written."""
        path = Path(self.folder, token(8) + SUFFIX)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return BillingMeter(path, self.units)
        except OSError as error:
            raise unwritable(str(path), error) from error


class BillingMeter:
    """The meter of an attempt of a task.

    Attributes:
        failure: Why it stopped counting; no request may leave after that.
    """

    failure: TidegateError | None = None

    def __init__(self, path: Path, units: Mapping[str, Collection[str]]) -> None:
        self._units = units
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self._end = 0  # of the file
        # by lookup, unit and day: position in the file, and count
        self._counts: dict[tuple[str, str, int], tuple[int, int]] = {}

    def add(self, lookup: str, unit: str, day: int, many: int) -> None:
        """Count units that a service bills.

        Args:
            lookup: The lookup's name.
            unit: The unit; a unit without a price is not counted.
            day: Days since the epoch, in UTC.
            many: Number of units; a negative number takes some back.

        Raises:
            TidegateError: The file cannot be written.
        """
        if unit not in self._units.get(lookup, ()) or not many:
            return
        line = (lookup, unit, day)
        known = self._counts.get(line)
        try:
            if known is None:
                head = f"{json.dumps(line)} ".encode()
                os.pwrite(self._file, head + b"%0*d\n" % (DIGITS, many), self._end)
                self._counts[line] = self._end + len(head), many
                self._end += len(head) + DIGITS + 1
            else:
                place, count = known
                os.pwrite(self._file, b"%0*d" % (DIGITS, count + many), place)
                self._counts[line] = place, count + many
        except OSError as error:
            self.failure = unwritable(str(self._path), error)
            raise self.failure from error

    def close(self) -> None:
        """Close its file. A call that has not ended can count no more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def unwritable(path: str, error: OSError) -> TidegateError:
    """Return the error of a bill that cannot be written."""
    return TidegateError(
        f"{path} cannot be written: {error.strerror}. It counts what services bill, so no request "
        "leaves without it; what was answered is kept. Mend that, and run again."
    )


Usage = Counter[tuple[str, int]]  # unit and day -> number


def metered(folder: Path) -> dict[str, Usage]:
    """Return what all attempts of all tasks of a run counted, by lookup.

    The request of a torn last line has not left; files of a run that ends meanwhile vanish.
    """
    found: dict[str, Usage] = {}
    for path in folder.glob(f"*{SUFFIX}"):
        whole = ""
        with contextlib.suppress(FileNotFoundError):
            whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
        for line in whole.splitlines():
            head, _, count = line.rpartition(" ")
            lookup, unit, day = json.loads(head)
            found.setdefault(lookup, Counter())[unit, day] += int(count)
    return found
