"""What readers must see in a night of publishing: whole days, by the table and by its folders."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow.parquet as pq

from jobs.schema.records import DayRecord
from jobs.tables.shown.shown_as_parquet import STATE
from tests.simulation.publishing.project import PLAIN, Row

if TYPE_CHECKING:
    from tests.simulation.publishing.rules import Rules


class ReaderRules:
    """The judge of what readers see."""

    def __init__(self, rules: "Rules") -> None:
        self._rules = rules

    def check_read(self, version: int, found: Collection[tuple[str, int, float]]) -> None:
        """Rows that a reader of this version got: day, id, mark."""
        wanted = {
            (day, row.id, float(row.mark))
            for day in self._rules.versions[version]
            for row in self._rows(version, day)
        }
        count = sum(len(self._rows(version, day)) for day in self._rules.versions[version])
        if {*found} != wanted or len(found) != count:
            self._rules.fail(
                f"wrong rows: readers of version {version} see {len(found)}, not {count}: "
                f"{self._rules.versions[version]}"
            )

    def check_record_of_readers(self, day: str, record: DayRecord | None) -> None:
        """The record that the day is taken to be shown by is of a run whose rows readers see."""
        runs = self._rules.shown[day]
        if runs and (record is None or record.facts.run_id not in runs):
            found = None if record is None else record.facts.run_id
            self._rules.fail(
                f"wrong record: readers of {day} see {runs}, and its record is of {found}"
            )

    def day_of_file(self, uri: str) -> str:
        return self._rules.runs[Path(unquote(uri)).parent.name].day

    def check_folders(self, *, only_last: bool = False) -> None:
        """What readers of the folders of Parquet see at this moment: each day whole, as some
        version has it.
        """
        shown: dict[str, list[tuple[int, float]]] = {}
        for path in sorted(Path(PLAIN).glob("date=*/*.parquet")):
            rows = pq.read_table(path, columns=["id", "price"], partitioning=None)
            pairs = zip(rows["id"].to_pylist(), rows["price"].to_pylist(), strict=True)
            shown.setdefault(path.parent.name.removeprefix("date="), []).extend(pairs)
        versions = (
            [self._rules.version]
            if only_last
            else [at for at in self._rules.versions if at >= self._version_in_folders()]
        )
        for day in {*shown} | {day for at in versions for day in self._rules.versions[at]}:
            rows = shown.get(day, [])
            wholes = [
                sorted((row.id, float(row.mark)) for row in self._rows(at, day)) for at in versions
            ]
            if sorted(rows) not in wholes and (rows or self._version_in_folders() >= 0):
                self._rules.fail(
                    f"a torn day: folder of {day} has {len(rows)} rows, which no version has"
                )

    def _version_in_folders(self) -> int:
        """The version that the folders have shown whole."""
        state = Path(PLAIN, STATE)
        return int(state.read_text().rpartition("@")[2] or -1) if state.exists() else -1

    def _rows(self, version: int, day: str) -> list[Row]:
        return self._rules.rows_shown(day, self._rules.versions[version])

    def may_be_gone(self, opened_at: float) -> bool:
        """Whether a reader who opened the table then may miss a file: a vacuum that keeps no old
        file removed some.

        It may have begun before, since it removes what is replaced while it works.
        """
        return self._rules.removals.emptied_at >= opened_at
