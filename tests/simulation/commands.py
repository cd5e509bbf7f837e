"""What people and maintenance do with the ledger beside the runs."""

import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from jobs.commands.expiry import expire_keys
from jobs.errors import TidegateError
from jobs.ledger.changes.compaction import compact
from jobs.ledger.changes.erasure import forget
from tests.simulation.day_plans import Row
from tests.simulation.declared import ledger_folder
from tests.simulation.forget_rules import check_forgotten
from tests.simulation.night_at_work import scheduler
from tests.simulation.night_facts import text_of
from tests.simulation.nights import Act, Night
from tests.simulation.processes import Process
from tests.simulation.rules import Rules
from tests.simulation.storage import Storage


class Commands:
    """Starts each command in a separate process."""

    def __init__(
        self,
        night: Night,
        rules: Rules,
        storage: Storage,
        days: Sequence[Sequence[Row]],
        draws: random.Random,
    ) -> None:
        """draws: Of the night's people and machines."""
        self._night, self._rules, self._disk, self._days = night, rules, storage, days
        self._facts, self._vendor = rules.facts, rules.facts.vendor
        self._draws = draws

    def start(self, act: Act) -> Process:
        if act.does == "compact":
            return self.compact(act.lookup, act.grace)
        if act.does == "maintenance":
            return scheduler().spawn("compact", self._maintain, act.grace)
        return scheduler().spawn(
            act.does, self._forget if act.does == "forget" else self._refresh, act
        )

    def compact(self, lookup: str, grace: float) -> Process:
        return scheduler().spawn("compact", self._compact, lookup, grace)

    def _compact(self, lookup: str, grace: float) -> None:
        self._as_command(
            "compact", partial(compact, ledger_folder(lookup), grace=timedelta(seconds=grace))
        )

    def _maintain(self, grace: float) -> None:
        for lookup in self._night.lookups:
            self._compact(lookup, grace)

    def _refresh(self, act: Act) -> None:
        """Some answers are declared expired, and the vendor has newer ones."""
        keys = self._some_keys(act)
        for key in keys:
            self._rules.unwanted(act.lookup, key)
        before, self._facts.older_values = self._facts.older_values, True
        busy = self._is_busy()
        texts = [text_of((key,)) for key in keys]
        if self._as_command("refresh", partial(expire_keys, ledger_folder(act.lookup), texts)):
            self._facts.older_values = before or busy or self._is_busy()
            for key in keys:
                self._vendor.versions[act.lookup, (key,)] += 1
                self._rules.unwanted(act.lookup, key)

    def _forget(self, act: Act) -> None:
        """Not beside runs: it moves the parts in which a run looks for its own answers
        (docs/ledger.md).
        """
        if self._is_busy():
            scheduler().say("runs are at work")
            return
        keys = self._some_keys(act)
        for key in keys:
            self._rules.unwanted(act.lookup, key)
        runs, busy, began = len(self._facts.runs), self._is_busy(), scheduler().now
        if self._as_command(
            "forget", partial(forget, ledger_folder(act.lookup), [text_of((key,)) for key in keys])
        ):
            if not busy and len(self._facts.runs) == runs:  # it does not cover runs at work
                # one that was killed meanwhile leaves the file that it was writing (docs/ledger.md)
                compacts = any(
                    process.name == "compact"
                    and (not process.has_ended or (process.was_cut and process.died_at >= began))
                    for process in scheduler().processes
                )
                check_forgotten(self._disk, act.lookup, keys, is_compacting=compacts)
            for key in keys:
                self._rules.unwanted(act.lookup, key)

    def _is_busy(self) -> bool:
        """Whether a run is at work, or a worker that outlived its run."""
        return any(
            not process.has_ended and process.name.startswith("run")
            for process in scheduler().processes
        )

    def _some_keys(self, act: Act) -> list[str]:
        keys = sorted({key for rows in self._days for row in rows if (key := row.keys[act.lookup])})
        return self._draws.sample(keys, max(1, int(len(keys) * act.share))) if keys else []

    def _as_command(self, name: str, work: Callable[[], object]) -> bool:
        """Whether the command ended well; it may refuse or fail in one sentence."""
        try:
            work()
        except TidegateError as error:
            scheduler().say(name, "failed:", error)
            return False
        return True
