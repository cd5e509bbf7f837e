"""The audit table, `<table>__audit`: the audit columns of every row, by row identity, day and run.

It is made from the run's files, without calls.
"""

from collections.abc import Callable

from jobs.declare.values.table_conflicts import AUDIT
from jobs.schema.records import DayFacts
from jobs.tables.delta import by_run


def table_of(table: str) -> str:
    return f"{table}{AUDIT}"


def write(facts: DayFacts, *, again: bool = True) -> Callable[[], object]:
    """Add the audit files of this run to the audit table, as `by_run.write` describes."""
    return by_run.write(table_of(facts.declared.table), facts, facts.audit_files, again=again)
