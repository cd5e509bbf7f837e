"""Compares figures of a drawn night with what is expected, and notes what differs."""

import datetime as dt
from collections import Counter

from deltalake import DeltaTable

from jobs.tables.records import run_records
from tests.jobs.run.drawn.natures import on
from tests.jobs.run.drawn.outcomes import FAILED


class Compared:
    """The figures of a night so far, and what was not as expected.

    Attributes:
        records: The newest record of each day.
        faults: In sentences.
    """

    def __init__(self, night):
        self.night, self.drawn, self.vendor = night, night.drawn, night.vendor
        self.world, self.faults = night.world, []
        self.records = newest_records()

    def same(self, what, got, wanted):
        if got != wanted:
            self.faults.append(f"{what}: {got}, not {wanted}")

    def letters(self, day):
        """The dead letters of a day, by lookup and outcome, as its audit has them."""
        audit = rows_of("published__audit", day)
        found = Counter()
        for look in self.drawn.looks:
            column = f"_{look.name}_status"
            for status in audit[column].to_pylist() if column in audit.column_names else ():
                policy = look.policies.get(on(status))
                if status in ("miss", *FAILED) and policy == "dead_letter":
                    found[look.name, status] += 1
        return found


def rows_of(table, day):
    day = dt.date.fromisoformat(day)
    return DeltaTable(table).to_pyarrow_table(filters=[("date", "=", day)])


def newest_records():
    """The newest record of each day."""
    found = {}
    for record in sorted(run_records.load("drawn"), key=lambda record: record.order):
        found[record.facts.day] = record
    return found
