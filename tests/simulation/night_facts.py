"""The facts that the rules of a night use: declared runs, and answers that were stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.declare.lookup import Lookup
from jobs.ledger.keys import key_text
from tests.simulation.night_at_work import scheduler
from tests.simulation.nights import Act, Night
from tests.simulation.processes import Process
from tests.simulation.vendor import Charge, Request, Vendor

ANSWERED = ("ok", "miss")
SLACK = 5.0  # s between a search for stored answers and the call for one that had expired


def text_of(key: tuple[Any, ...]) -> str:
    return key_text(key, hidden=False)


def run_of(process: Process) -> str:
    """The run that a driver or a worker belongs to."""
    return process.name.split(".")[0]


@dataclass(frozen=True)
class DeclaredRun:
    """A run as it was started. lookups: by name, as it declares them."""

    began_at: float
    act: Act
    lookups: Mapping[str, Lookup]

    @property
    def lives(self) -> float | None:
        """Seconds for which it uses an answer; None for ever."""
        ok = next(iter(self.lookups.values())).ttl.ok
        return None if ok is None or self.act.does != "run" else ok.total_seconds()

    @property
    def refuses_odd(self) -> bool:
        return "error_when" in self.act.changed


@dataclass
class NightFacts:
    """What happened in a night so far.

    Attributes:
        runs: By name.
        stored_at: By lookup and key, when the product learned that its answer was stored.
        stored_by: Runs with lookup and key of such answers, whatever became of them later.
        refreshed: Lookups and keys whose answers were refreshed or forgotten.
        copied: Runs of which a task ran twice at once.
        older_values: An answer of before a refresh may be right.
    """

    night: Night
    vendor: Vendor
    runs: dict[str, DeclaredRun] = field(default_factory=dict)
    stored_at: dict[tuple[str, str], float] = field(default_factory=dict)
    stored_by: set[tuple[str, str, str]] = field(default_factory=set)
    refreshed: set[tuple[str, str]] = field(default_factory=set)
    copied: set[str] = field(default_factory=set)
    last_power_cut: float = -1.0
    older_values: bool = False
    clock_was_set: bool = False

    def declared(self, process: Process) -> DeclaredRun:
        return self.runs[run_of(process)]

    def is_open_again(
        self, run: DeclaredRun, lookup: str, key: "tuple[Any, ...]", known_at: float
    ) -> bool:
        """Whether the declaration of this run does not count an answer that is known since then."""
        if run.refuses_odd and "odd" in (self.vendor.answer(lookup, key[:1], 0) or ()):
            return True  # error_when calls the stored answer an error, and errors are asked again
        if self.clock_was_set and (lookup, text_of(key[:1])) in self.refreshed:
            # by the clock that was set the refresh may be later than the answer (docs/ledger.md)
            return True
        if run.lives is None:
            return False
        # it has expired
        return self.clock_was_set or scheduler().now >= known_at + run.lives - SLACK

    def settled_as_error(self, charge: Charge) -> bool:
        """Whether its run took the answer for an error, by its error_when: it is asked again."""
        return self.declared(charge.process).refuses_odd and "odd" in (
            self.vendor.answer(charge.lookup, charge.key[:1], charge.version) or ()
        )

    def seemed_dead(self, charge: Charge, request: "Request | Charge") -> bool:
        """A clock that is set makes claims and runs at work look dead until they are renewed
        (docs/planning.md).
        """
        return self.clock_was_set and run_of(charge.process) != run_of(request.process)
