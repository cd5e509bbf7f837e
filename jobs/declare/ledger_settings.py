"""The declared settings of a ledger: its place, its flush interval, and times to live."""

import math
from dataclasses import dataclass, field, replace
from datetime import timedelta

from jobs.declare.values.places import STORES, refuse_home, refuse_secrets
from jobs.declare.values.type_checks import require_types
from jobs.errors import DeclarationError
from jobs.storage.urls import is_url

ATOMIC = ("file", "gcs", *STORES)  # filesystems where readers see an object whole or not at all


@dataclass(frozen=True)
class Ledger:
    """Where answers are stored, and when: after `flush_rows` answers or `flush_seconds` s.

    Attributes:
        path: A folder, or a URL (s3://, gs://, abfs://, abfss://) without a secret in it. Every
            executor must reach it. A killed process loses at most the answers of such an interval
            and the calls in flight.
        flush_rows: Highest number of answers that wait to be stored, at least 1.
        flush_seconds: Longest time that an answer waits to be stored, in seconds, over 0.
    """

    path: str = "data/ledger"
    flush_rows: int = field(default=200, kw_only=True)
    flush_seconds: float = field(default=0.5, kw_only=True)

    def __post_init__(self) -> None:
        require_types(self, "ledger")
        if not self.path:
            raise DeclarationError(
                f"ledger: path is {self.path!r}; it must be a folder or a filesystem URL."
            )
        refuse_home("ledger", self.path)
        refuse_secrets("ledger", self.path)
        scheme, _, rest = self.path.partition("://")
        if is_url(self.path) and scheme not in ATOMIC:
            raise DeclarationError(
                f"ledger: path is {self.path!r}; a ledger is in a folder, or at a URL that begins "
                f"with {', '.join(f'{store}://' for store in STORES)}: no other replaces a file "
                "atomically. Copy the files of an old ledger there."
            )
        if is_url(self.path) and (not rest or rest.startswith("/") != (scheme == "file")):
            raise DeclarationError(
                f"ledger: path is {self.path!r}; a URL has a bucket and a path, such as "
                "s3://bucket/ledger; that of a folder begins with file:///."
            )
        if self.flush_rows < 1 or not 0 < self.flush_seconds < math.inf:
            raise DeclarationError(
                f"ledger: flush_rows={self.flush_rows!r}, flush_seconds={self.flush_seconds!r}; "
                "flush_rows must be a "
                "whole number, at least 1, and flush_seconds over 0. Without a ledger: ledger=None."
            )


@dataclass(frozen=True, kw_only=True)
class Ttl:
    """How long a stored outcome replaces a call; None for ever, 0 never.

    Attributes:
        ok: For an answer.
        miss: For a miss.
        error: For an error; 0 stores no errors.
    """

    ok: timedelta | None = None
    miss: timedelta | None = timedelta(days=1)
    error: timedelta | None = timedelta(0)

    def __post_init__(self) -> None:
        for name in ("ok", "miss", "error"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, timedelta) or value < timedelta(0)):
                raise DeclarationError(
                    f"ttl: {name} is {value!r}; it must be a timedelta, 0 or more, or None: for "
                    "ever."
                )

    @property
    def keeps_errors(self) -> bool:
        return self.error is None or self.error > timedelta(0)

    def longer(self, by: timedelta) -> "Ttl":
        """Return the limits of a run that judges ages as of an earlier time.

        Args:
            by: The time since then.
        """
        ages = {"ok": self.ok, "miss": self.miss, "error": self.error}
        longest = timedelta.max - by
        later = {name: min(age, longest) + by for name, age in ages.items() if age is not None}
        return replace(self, **later)

    def max_age_us(self) -> dict[str, int | None]:
        """Return each outcome's time to live in µs; None for ever."""
        return {
            name: None if value is None else value // timedelta(microseconds=1)
            for name, value in (("ok", self.ok), ("miss", self.miss), ("error", self.error))
        }


@dataclass(frozen=True)
class AnyAge(Ttl):
    """No time to live: replay, remap and refresh use answers of any age, and decide themselves what
    is called.

    Attributes:
        stores_errors: Whether they store errors, for runs that use these for a time.
    """

    stores_errors: bool = False

    @property
    def keeps_errors(self) -> bool:
        return self.stores_errors


FOR_EVER = AnyAge(ok=None, miss=None)
