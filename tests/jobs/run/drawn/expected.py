"""An independent model of runs: what each row and each key of drawn lookups may end as.

Nothing here imports the product.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.jobs.run.drawn.natures import Look, reaction
from tests.jobs.run.drawn.outcomes import (
    ANSWERED,
    FAILED,
    OF_WHOLE_BATCH,
    PASSING,
    RAW,
    THROTTLED,
    Outcome,
    World,
    cannot_be_sent,
    is_judged,
    key_of,
    outcome_of,
    status_of,
    text_of,
)


@dataclass
class Asked:
    """What a run may have asked of a lookup: how often each key, in how many requests, and the
    rows and calls that its figures count.
    """

    keys: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    from_ledger: set[str] = field(default_factory=set)  # keys
    called: set[str] = field(default_factory=set)  # keys, also such as cannot be sent


@dataclass
class Run:
    """A run of rows, as the model expects it.

    Attributes:
        ignores_ttl: It uses answers of any age, and no errors.
        may_call: Without it no key is asked.
        stops: A denied call, or a row that fails by its policy, stops it.
    """

    world: World
    looks: list[Look]
    epoch: int
    ignores_ttl: bool = False
    may_call: bool = True
    stops: bool = False
    asked: dict[str, Asked] = field(default_factory=lambda: defaultdict(Asked))
    outcomes: dict[tuple[str, str], Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.before = dict(self.world.kept)

    def is_free(self, look: Look, key: str) -> bool:
        """Whether the run needs no call for a key."""
        kept = self.before.get((look.name, look.version, key))
        if kept is None:
            return False
        status = status_of(look, key, kept.what)
        if kept.what in RAW and kept.what != "cut" and is_judged(look, kept.what):
            return look.error_ttl or self.ignores_ttl
        if kept.what == "mark" or status == "ok" or kept.what in ("misfit", "cut"):
            return True
        if status == "miss":
            return look.miss_ttl or self.ignores_ttl
        return look.error_ttl and not self.ignores_ttl

    def rows(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows with the outcome of each lookup as `<lookup>:outcome`, and the columns of answers
        and waterfalls; lookup by lookup, as their levels are asked.
        """
        found = [dict(row) for row in rows]
        for look in self.looks:
            for row in found:
                outcome = self._of_row(look, row)
                self.stops |= look.fails_on(outcome.status)
                row[f"{look.name}:outcome"] = outcome
                if look.waterfall:
                    self._choose(look, row)
                else:
                    row[f"{look.name}_status"] = outcome.status
                    row |= {look.column(name): outcome.values.get(name) for name in look.members}
        return found

    def vendors(self, look: Look) -> list[Look]:
        """The vendors of a lookup's waterfall up to it, in order."""
        vendors = [vendor for vendor in self.looks if vendor.waterfall == look.waterfall]
        return vendors[: vendors.index(look) + 1]

    def _choose(self, look: Look, row: dict[str, Any]) -> None:
        """Set the columns of a waterfall as they are after its vendor `look`."""
        of = [(vendor, row[f"{vendor.name}:outcome"]) for vendor in self.vendors(look)]
        accepted = [
            (vendor, out) for vendor, out in of if out.status == "ok" and look.accepts(out.values)
        ]
        failed = [(None, out) for _, out in of if out.status in FAILED]
        answered = [(vendor, out) for vendor, out in reversed(of) if out.status == "ok"]
        asked = [(None, out) for _, out in reversed(of) if out.status != "skipped"]
        first = [
            candidates for candidates in (accepted, failed, answered, asked) if candidates
        ] or [[(None, Outcome("skipped"))]]
        vendor, outcome = first[0][0]
        row[f"{look.waterfall}_status"] = outcome.status
        row[f"{look.waterfall}_vendor"] = vendor and vendor.name
        values = outcome.values if vendor else {}
        row |= {look.column(name): values.get(name) for name in look.members}

    def _is_passed(self, look: Look, row: dict[str, Any]) -> bool:
        """Whether the vendors before it leave a row to this one."""
        for vendor in self.vendors(look)[:-1] if look.waterfall else ():
            outcome = row[f"{vendor.name}:outcome"]
            if outcome.status == "ok" and look.accepts(outcome.values):
                return False
            if outcome.status in FAILED and outcome.status not in look.spills:
                return False
        return True

    def _of_row(self, look: Look, row: dict[str, Any]) -> Outcome:
        is_asked = self._is_passed(look, row) and (look.holds is None or look.holds(row))
        values = key_of(look, row) if is_asked else None
        if values is None:
            return Outcome("skipped")
        key, asked = text_of(values), self.asked[look.name]
        if self.is_free(look, key):
            kept = self.before[look.name, look.version, key]
            outcome = outcome_of(look, key, kept.what, kept.epoch)
            if outcome.status != "unknown":
                asked.counts["from_ledger"] += 1
                asked.from_ledger.add(key)
            return outcome
        if not self.may_call:
            return Outcome("not_asked")
        if cannot_be_sent(look, values):
            self.world.keep(look, key, "unsent", self.epoch)
            is_first = not look.has_cache or (look.name, key) not in self.outcomes
            self.outcomes[look.name, key] = Outcome("error")
            names = ("rows_called", "calls") if is_first else ("shared",)
            asked.counts.update(names)
            asked.called.add(key)
            return Outcome("error")
        if look.has_cache and (look.name, key) in self.outcomes:
            outcome = self.outcomes[look.name, key]
            asked.counts["shared"] += outcome.status != "unknown"
            return outcome
        outcome = self.outcomes[look.name, key] = self._called(look, key)
        asked.counts["rows_called"] += 1
        asked.called.add(key)
        asked.counts["answered"] += outcome.status in ANSWERED
        return outcome

    def _called(self, look: Look, key: str) -> Outcome:
        mood, name, tries, repairs = look.mood(key), (look.name, key), 0, 0
        asked = self.asked[look.name]
        while True:
            what = reaction(mood, self.world.seen[name])
            self.world.seen[name] += 1
            asked.keys[key] += 1
            is_one = what in (*THROTTLED, "404", "hang") or (what == "slow" and not look.finishes)
            asked.requests += 1 if is_one else look.pages_asked(key)
            if look.kind == "batch" and what in OF_WHOLE_BATCH:
                self.world.unsure.add(look.name)
            is_unfit = what == "misfit" or (what == "lacks" and "n" in look.required)
            asked.counts["calls"] += not repairs or what in THROTTLED
            asked.counts["throttled"] += what in THROTTLED
            if what in PASSING and tries < look.retries:
                tries += 1
            elif is_unfit and repairs < look.repair:
                repairs += 1
                asked.counts["repaired"] += 1
            elif what not in THROTTLED:
                self.stops |= look.stops_at(what)
                break
        is_stored = self.world.keep(look, key, what, self.epoch)
        asked.counts["stored"] += repairs + is_stored
        return outcome_of(look, key, what, self.epoch)
