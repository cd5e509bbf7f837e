"""What a key of a drawn lookup ends as, and what lasts of it over the runs of a night.

Nothing here imports the product.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.jobs.run.drawn.natures import DENIALS, Look, canonical

ANSWERED = ("ok", "miss")
FAILED = ("error", "timeout", "unknown", "not_asked")
THROTTLED, PASSING = ("429", "503", "over"), ("500", "drop", "hang")
OF_WHOLE_BATCH = (*THROTTLED, *DENIALS, "500", "400", "left out")
RAW = (
    "answer",
    "lacks",
    "wrong",
    "cut",
    "misfit",
    "202",
)  # answers that the ledger has as they came
# of a call that must not be repeated: these do not tell what became of it
UNSETTLED = ("500", "drop", "hang", "slow", "garbage", "twice", "large", "204", "202", "two")


@dataclass(frozen=True)
class Outcome:
    """What a key ended as, with its values."""

    status: str
    values: dict[str, Any] = field(default_factory=dict, hash=False)


def outcome_in(row: dict[str, Any], look: Look) -> Outcome:
    """What a row of a run has of a lookup; without a status if the lookup was declared later."""
    outcome: Outcome = row.get(f"{look.name}:outcome", Outcome(""))
    return outcome


@dataclass(frozen=True)
class Kept:
    """What the ledger has of a key: the last answer, or the mark of a call."""

    what: str
    epoch: int


@dataclass
class World:
    """What lasts over the runs of a night.

    Attributes:
        kept: What the ledger has, by lookup, version and key.
        seen: Requests of each lookup and key, as the vendor counts them.
        unsure: Lookups whose outcomes depend on which keys met in a batch.
    """

    kept: dict[tuple[str, int, str], Kept] = field(default_factory=dict)
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    unsure: set[str] = field(default_factory=set)

    def find(self, look: Look, key: str) -> Kept | None:
        return self.kept.get((look.name, look.version, key))

    def keep(self, look: Look, key: str, what: str, epoch: int) -> bool:
        """Keep what a call ended with, as far as the ledger does; tell whether it is an answer."""
        if look.stops_at(what):
            return False
        if what == "slow" and look.finishes:
            what = "answer"
        place = look.name, look.version, key
        is_raw = what in RAW and (what != "202" or look.takes_202) and not look.is_too_long(key)
        is_miss = status_of(look, key, what) == "miss"
        if is_raw or is_miss:
            self.kept[place] = Kept(what, epoch)
        elif not look.idempotent and (
            what in UNSETTLED
            or look.ends_too_long(key, what)
            or (what == "400" and look.pages_of(key) > 1)  # of the last page
            # nobody can know what a coroutine did before
            or (what == "unsent" and look.kind == "coroutine")
        ):
            self.kept[place] = Kept("mark", epoch)
        elif not look.idempotent or (look.error_ttl and what not in ("slow", "302")):
            self.kept[place] = Kept(what, epoch)
        return is_raw or is_miss

    def keys(self, look: Look, is_meant: Callable[[str, Kept], bool]) -> set[str]:
        """The keys of a lookup whose kept answer is meant."""
        return {
            key
            for (*place, key), kept in self.kept.items()
            if place == [look.name, look.version] and is_meant(key, kept)
        }

    def forget(self, look: Look, keys: set[str]) -> None:
        """Drop what is kept of a lookup's keys."""
        for key in keys:
            self.kept.pop((look.name, look.version, key), None)


def is_judged(look: Look, what: str) -> bool:
    return (
        what == "cut"
        or (what == "lacks" and "n" in look.required)
        or (what == "wrong" and look.judges)
    )


def status_of(look: Look, key: str, what: str) -> str:
    """The status of a key whose last request was answered so."""
    if what == "mark":
        return "unknown"
    if what == "slow":
        return "timeout"
    if what in ("404", "none") or (what == "left out" and look.left_out == "miss"):
        return "miss"
    is_answer = what in ("answer", "lacks", "wrong", "cut") or (what == "202" and look.takes_202)
    return (
        "ok" if is_answer and not is_judged(look, what) and not look.is_too_long(key) else "error"
    )


def outcome_of(look: Look, key: str, what: str, epoch: int) -> Outcome:
    """The outcome of a key whose last request was answered so."""
    status = status_of(look, key, what)
    if status != "ok":
        return Outcome(status)
    truths = look.truths(key, epoch)
    values = {name: truth.value for name, truth in truths.items() if name in look.members}
    if what == "lacks":
        values["n"] = None
    if look.kind == "pages":
        values["items"] = [f"{key}#{page}" for page in range(look.pages_of(key))]
    return Outcome("ok", values)


def key_of(look: Look, row: dict[str, Any]) -> list[Any] | None:
    """The values of a row's key; None where one is null."""
    values = [read(row) for read in look.reads.values()]
    return None if None in values else values


def text_of(values: list[Any]) -> str:
    return json.dumps([canonical(value) for value in values])


def cannot_be_sent(look: Look, values: list[Any]) -> bool:
    """Whether no path can have the key."""
    in_path = look.kind in ("http", "pages", "coroutine")
    return in_path and any(value in ("", ".", "..") for value in values)
