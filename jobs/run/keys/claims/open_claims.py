"""A task's claims whose keys are called and not all stored yet, which its threads share."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from jobs.errors import LedgerError
from jobs.run.keys.claims.claim_file import Claim

RENEW_EVERY = 10.0  # s between two renewals of a claim, at most
FEWEST_AHEAD = 200  # keys per lookup that are claimed and not stored yet
AHEAD_GROWS = 4  # factor, each half second or so that a task waits for its ledger
PART_TOGETHER = 4  # a file claims this part of the keys ahead

_log = logging.getLogger("tidegate.ledger")

Group = tuple[int, int]  # the number of a lookup, and a share of its keys


@dataclass
class _Open:
    claim: Claim
    rows: int  # called, not stored yet


class OpenClaims:
    """The claims whose keys are called and not all stored yet.

    Three threads use it: the thread that reads the input adds claims and waits for room, the thread
    that yields reports stored rows, and a third thread renews the files. `end` may come from
    any thread. The lock guards every field, and nobody holds it while the ledger's files are read
    or written.

    Few keys are claimed ahead of the stored answers, so that claimed keys are called soon and do
    not block other runs. A task whose calls are done before there is room may claim more.
    """

    def __init__(self, lookups: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._open: dict[Group, _Open] = {}  # groups of the same claim share an entry
        self._rows = 0  # called, not stored yet
        # a fast lookup's keys wait to be stored, and leave room for a slow lookup
        self._ahead = FEWEST_AHEAD * lookups
        self._waits_for_room = False
        self._has_progressed = False  # rows were stored since the last wait for progress
        self._has_ended = False
        self._renewing: threading.Thread | None = None

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    @property
    def keys_together(self) -> int:
        """The number of keys that are enough for a claim."""
        return self._ahead // PART_TOGETHER

    def has(self, group: Group) -> bool:
        with self._changed:
            return group in self._open

    def add(self, claim: Claim, groups: Iterable[Group], rows: int) -> None:
        """Keep a claim until so many rows of these groups are stored."""
        with self._changed:
            self._open |= dict.fromkeys(groups, _Open(claim, rows))
            self._rows += rows
        if self._renewing is None:
            self._renewing = threading.Thread(target=self._renew, name="ledger claims", daemon=True)
            self._renewing.start()

    def wait_for_room(self) -> None:
        with self._changed:
            self._waits_for_room = self._rows >= self._ahead
            while self._rows >= self._ahead and not self._has_ended:
                self._changed.wait(1.0)
            self._waits_for_room = False

    def wait_for_progress(self, seconds: float) -> bool:
        """Wait until rows are stored, at most for so long. Returns whether some were."""
        with self._changed:
            if not self._rows:
                self._has_progressed = False
            self._changed.wait_for(lambda: self._has_ended or self._has_progressed, seconds)
            has_progressed, self._has_progressed = self._has_progressed, False
        return has_progressed

    def stored(self, groups: Iterable[Group]) -> None:
        """Note that a row of each of these groups is stored. Deletes claims that have no more."""
        through = []
        with self._changed:
            for group in groups:
                entry = self._open[group]
                entry.rows -= 1
                self._rows -= 1
                if not entry.rows:
                    through.append(entry.claim)
                    self._open = {
                        other: kept for other, kept in self._open.items() if kept is not entry
                    }
            # the service is faster than rows leave the task
            if self._waits_for_room and self._rows < self._ahead / 2:
                self._ahead *= AHEAD_GROWS
            self._has_progressed = True
            self._changed.notify_all()
        for claim in through:
            claim.delete()

    def _renew(self) -> None:
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._has_ended, RENEW_EVERY / 2):
                    return
                claims = {id(entry): entry.claim for entry in self._open.values()}.values()
            for claim in claims:
                if self._clock() - claim.renewed >= RENEW_EVERY / 2:
                    self._renew_one(claim)

    def _renew_one(self, claim: Claim) -> None:
        try:
            claim.renew(self._clock())
            with self._changed:
                is_open = any(claim is entry.claim for entry in self._open.values())
            if not is_open:  # deleted meanwhile: the renewal must not leave it behind
                claim.delete()
        except LedgerError as error:  # at worst other runs repeat its calls
            _log.warning("%s", error)

    def end(self) -> None:
        """End all waits. Remaining claims expire, or go with the run's folder."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
