"""The audit table, `<table>__audit`: the audit columns of every row, by row identity, day and run.

It is made from the run's files, without calls.
"""

from collections.abc import Callable

from jobs.schema.records import DayFacts
from jobs.tables.delivery import with_rows
from jobs.tables.delta import by_run
from jobs.tables.rows_beside import audit_rows


def table_of(table: str) -> str:
    return f"{table}__audit"


def write(facts: DayFacts, *, again: bool = True) -> Callable[[], object]:
    """Writes this run's audit rows beside those of the published run, like `by_run.write`."""
    table = table_of(facts.declared.table)
    if facts.audit_files:  # its tasks wrote them
        return by_run.take_over(table, facts, facts.audit_files, again=again)
    files = with_rows(facts)
    return by_run.write(
        table, facts, (lambda: audit_rows(files, facts)) if files else None, again=again
    )
