"""Says how the program of a run ended that did not report the end of its days."""

import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jobs.errors import LOG_SAYS_MORE
from jobs.run.enrich_day import FAILED, STOPPED, WRONG
from jobs.storage.machine import low_limits

# among the last lines of a Java that ended before it started the program
JAVA_ENDED = re.compile(
    r"\tat (org\.apache\.spark\.deploy|java\.base/sun\.launcher)\."
    r"|Error: A fatal exception|Error occurred during initialization of VM"
)
# lines of Java and of spark-submit that follow the reason
AFTER_REASON = re.compile(
    r"\t(at |\.\.\. \d+ more)|Error: (Could not create|A fatal exception)"
    r"|.*: CMD: bad array subscript$"
)
EXCEPTION = re.compile(r'^(Exception in thread "main"|Caused by:) [\w.$]+: ')
# exit statuses for which the program has reported the reason
REPORTED = (FAILED, WRONG, STOPPED)
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)  # the second by a shell between
LITTLE = 100_000  # bytes: a disk with less is full for a run's events and records


@dataclass(frozen=True)
class ProgramResult:
    """The end of a Spark program that did not report the end of its days."""

    code: int
    reason: str  # a sentence

    @property
    def crashed(self) -> bool:
        """True when the program was killed or broke off, so that another try may succeed."""
        return self.code not in REPORTED


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def ended(code: int, log: Path, free: Callable[[Path], int] = _free) -> ProgramResult:
    """Return how a program ended before its last event; its last log line may be the reason.

    Args:
        code: Its exit status.
        log: Its log.
        free: Returns how many bytes the disk of a folder has left.
    """
    full = ""
    if (left := free(log.parent)) < LITTLE:  # it could not write its last event, nor the reason
        full = f" The disk of {log.parent} has {left:,} bytes left: make room, then run it again."
    if code in REPORTED:
        return ProgramResult(code, f"{_logged_reason(log)}{full}")
    how = "was killed, perhaps because memory ran out" if code in KILLED else f"ended with {code}"
    return ProgramResult(
        code, f"The run's program {how}, before the day was done.{full}{LOG_SAYS_MORE}{log}"
    )


def _logged_reason(log: Path) -> str:
    lines = [
        line.rstrip()
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    reasons = [line for line in lines if not AFTER_REASON.match(line)]
    if not reasons:
        return "The Spark program ended without a message."
    if any(JAVA_ENDED.match(line) for line in lines[-3:]):
        why = EXCEPTION.sub("", reasons[-1]).rstrip(".")
        return f"Spark cannot start: {why}.{low_limits()} Nothing was called.{LOG_SAYS_MORE}{log}"
    return reasons[-1].strip()
