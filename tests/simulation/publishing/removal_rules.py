"""What may be removed in a night of publishing: no file that readers see, need, or wait for."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.night_at_work import scheduler
from tests.simulation.processes import Process
from tests.simulation.publishing.project import PLAIN, TABLE

if TYPE_CHECKING:
    from tests.simulation.publishing.rules import Rules

DAY = 86_400.0  # s


class RemovalRules:
    """The judge of removals.

    Attributes:
        emptied_at: When a vacuum that keeps nothing removed files last.
    """

    def __init__(self, rules: "Rules") -> None:
        self._rules = rules
        self.emptied_at = -1.0
        self._retentions: dict[Process, float] = {}  # s; of vacuums
        self._gone: set[str] = set()  # of the replaced files

    def vacuum_begins(self, days: int) -> None:
        self._retentions[scheduler().me().process] = days * DAY

    def _note_removal(self) -> None:
        if self._retentions.get(scheduler().me().process) == 0:
            self.emptied_at = self._rules.now

    def removes(self, path: str) -> None:
        """Somebody is about to remove this file or folder."""
        self._note_removal()
        if path.startswith(f"{Path(PLAIN).resolve()}/date="):
            self._rules.fail(f"a shown folder is removed in place: {path}")
        root = f"{Path(TABLE).resolve()}/"
        name = path.removeprefix(root)
        if not path.startswith(root) or not name.startswith("runs/"):
            return
        if name in self._rules.log.files:
            self._rules.fail(f"a shown file is removed: {name} by {scheduler().me().process}")
        self._check_kept(name)
        run_id = name.split("/")[1]
        me = scheduler().me().process
        for day, (holder, _) in self._rules.leases.holders.items():
            if run_id in self._rules.leases.at_work(day) and me is not holder:
                self._rules.fail(f"a file of a run at work is removed: {name} by {me}")

    def _check_kept(self, name: str) -> None:
        at = self._rules.replaced_at.get(name)
        retention = self._retentions.get(scheduler().me().process, math.inf)
        if at is not None and self._rules.now - at < retention:
            self._rules.fail(
                f"removed too early: {name}, replaced {self._rules.now - at:.0f} s before"
            )

    def check_files(self) -> None:
        """deltalake has removed files: none that is shown, and none that is needed by readers of
        versions lately.
        """
        self._note_removal()
        for name in self._rules.log.files:
            if not Path(TABLE, name).exists():
                self._rules.fail(f"a shown file is gone: {name}")
        for name in self._rules.replaced_at:
            if name not in self._gone and not Path(TABLE, name).exists():
                self._gone.add(name)
                self._check_kept(name)
        for log in (*self._rules.beside.values(), self._rules.summary):
            for _ in log.new_entries():
                pass
            for name, file in log.files.items():
                if not (log.table / name).exists() and not self._rules.may_be_lost(file.run_id):
                    self._rules.fail(f"a shown file is gone: {log.table}/{name}")
