"""Checks a package's declarations against inputs, tables, secrets and services, without a call."""

import contextlib
import enum
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import chain

from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.discovery import Discovered, discover_all
from jobs.declare.finding.upstreams import find_upstream, upstream_first
from jobs.declare.values.calendar import is_day
from jobs.declare.values.table_conflicts import find_conflict
from jobs.errors import DeclarationError, RunStopped, TidegateError
from jobs.input.day import InputDay, last_day
from jobs.input.row_ids import read_row_ids
from jobs.run.coordinator.run_leases import refuse_small_budgets
from jobs.run.plan.column_checks import check_columns
from jobs.run.plan.preflight import find_day, steps
from jobs.run.plan.service_checks import check_service_limits
from jobs.schema.records import DeclaredFacts
from jobs.tables.records import run_records
from jobs.wording import counted, described

LONG_TIMEOUT = 1_000  # s; a longer one may be meant in milliseconds


class Finding(enum.Enum):
    """A finding; its value is what `check` prints."""

    RIGHT = "right"
    WRONG = "WRONG"
    # a service is down or denies access, so that a run would stop; the declaration may be right
    STOPS = "STOPS"


# returns a sentence for each declared check that cannot be made; it gets the input's columns, if
# they are known
FindWrong = Callable[[DeclaredFacts, Sequence[str] | None], Sequence[str]]


def _none(*_: object) -> Sequence[str]:
    return ()


def check_package(
    package: str,
    day: str | None = None,
    engine: str | None = None,
    *,
    find_wrong: FindWrong = _none,
) -> Iterator[tuple[str, str, Finding]]:
    """Yield each enrichment's name, a sentence, and the finding, also after a fault.

    Args:
        package: The package of the declarations.
        day: The day or hour of the input; by default the last of each enrichment.
        engine: The engine that runs the days; by default the environment chooses it.
        find_wrong: Finds wrong declarations of checks.

    Raises:
        DeclarationError: The package does not exist.
    """
    declared, faults = discover_all(package)
    for module, error in faults.items():
        yield module, str(error).removeprefix(f"{module} "), Finding.WRONG
    for found in declared:
        others = [other for other in declared if other is not found]
        yield from check_enrichment(found, others, day, engine, find_wrong=find_wrong)
    try:
        upstream_first(declared)
    except DeclarationError as circle:
        yield package, str(circle), Finding.WRONG


def check_enrichment(
    found: Discovered,
    others: Sequence[Discovered],
    day: str | None,
    engine: str | None,
    *,
    find_wrong: FindWrong,
) -> Iterator[tuple[str, str, Finding]]:
    """Yield what `check_package` does, of an enrichment beside the others of its package."""
    enrichment, conflict = found.enrichment, find_conflict(found, others)
    upstream = find_upstream(enrichment, [other.enrichment for other in (found, *others)])
    lines = _checked(enrichment, day, conflict, engine, upstream=upstream, find_wrong=find_wrong)
    yield from ((enrichment.name, *line) for line in lines)
    yield from ((enrichment.name, wrong, Finding.WRONG) for wrong in _lost(enrichment))


def _checked(
    enrichment: Enrichment,
    day: str | None,
    conflict: str,
    engine: str | None,
    *,
    upstream: Enrichment | None,
    find_wrong: FindWrong,
) -> Iterator[tuple[str, Finding]]:
    """Yield all faults, a sentence each, with the conflict; or a sentence that all is right.

    Args:
        enrichment: The enrichment.
        day: The day; None checks the last day of the input.
        conflict: A fault that its declaration shares with another declaration; empty without.
        engine: The engine that a run would use.
        upstream: The enrichment that publishes the input, if any.
        find_wrong: Finds declared checks that cannot be made.
    """
    # imports deltalake, which declarations do not need
    from jobs.tables.delta.type_check import published_table

    faults: dict[str, Finding] = {conflict: Finding.WRONG} if conflict else {}
    day = day if day and is_day(day, enrichment.input.every) else None
    waits = "" if upstream is None else _why_input_waits(upstream, day)
    with _noting(enrichment, faults):
        day = day if day or waits else last_day(enrichment.input)
    input_day, published = None, published_table(enrichment)
    if day is not None and not waits:
        with _noting(enrichment, faults):
            input_day = find_day(enrichment, day, published)
    before_calls = steps(enrichment, input_day, day, engine, published)
    for step in chain(before_calls, _later_steps(enrichment, input_day)):
        with _noting(enrichment, faults):
            step()
    with _noting(enrichment, faults):
        columns = None if input_day is None else input_day.names
        for wrong in find_wrong(enrichment.facts(), columns):
            faults.setdefault(wrong, Finding.WRONG)
    if faults:
        yield from faults.items()
    elif waits:
        yield f"{waits}; the rest is checked", Finding.RIGHT
    elif input_day is not None:
        lookups = ", ".join(lookup.name for lookup in enrichment.lookups)
        found = f"{counted(input_day.rows, 'row')} in {counted(len(input_day.files), 'file')}"
        yield f"{day}: {found}{input_day.unread_clause}; lookups {lookups}", Finding.RIGHT
    for lookup in enrichment.lookups:
        if lookup.trusts is not None:
            yield f"lookup {lookup.name}: {lookup.trusts}", Finding.RIGHT
        if lookup.timeout is not None and lookup.timeout >= LONG_TIMEOUT:
            span = timedelta(seconds=min(lookup.timeout, timedelta.max // timedelta(seconds=1)))
            yield f"lookup {lookup.name}: timeout is in seconds: {span}", Finding.RIGHT


def _later_steps(
    enrichment: Enrichment, input_day: InputDay | None
) -> Iterator[Callable[[], object]]:
    """Yield what a run refuses after `steps`: when it compares rows, and at its first call."""
    if input_day is not None and enrichment.input.only_changed:
        yield lambda: _check_row_ids(enrichment, input_day)
    # a run whose answers are all stored needs no budget
    yield lambda: check_service_limits(enrichment, refuse_small_budgets)


def _check_row_ids(enrichment: Enrichment, input_day: InputDay) -> None:
    check_columns(enrichment, input_day.names)
    read_row_ids(enrichment, input_day)


def _why_input_waits(upstream: Enrichment, day: str | None) -> str:
    """Return a clause if the enrichment that publishes an input has not published it yet."""
    from jobs.tables.delta.asked_keys import files_of_days  # imports deltalake

    with contextlib.suppress(TidegateError):
        days = {published for published, _ in files_of_days(upstream)}
        if day not in days if day else not days:
            return f"{upstream.name} has not published {day or 'a day'} yet, which is the input"
    return ""


@contextlib.contextmanager
def _noting(enrichment: Enrichment, faults: dict[str, Finding]) -> Iterator[None]:
    """Add an error of the body to `faults`, so that later checks still run."""
    try:
        yield
    except TidegateError as error:
        also = error.also if isinstance(error, DeclarationError) else ()
        finding = Finding.STOPS if isinstance(error, RunStopped) else Finding.WRONG
        for message in (str(error), *also):
            faults.setdefault(message.removeprefix(f"{enrichment.name}: "), finding)
    except Exception as error:  # noqa: BLE001  # a declaration is code, and others are still to be checked
        faults.setdefault(" ".join(described(error).split()), Finding.WRONG)


def _lost(enrichment: Enrichment) -> Iterator[str]:
    # imports deltalake, which declarations do not need
    from jobs.tables.shown.shown_days import lost_days
    from jobs.tables.shown.shown_elsewhere import lagging

    for path in run_records.torn(enrichment.name):
        yield f"record {path} is torn. Delete it; a published day stays published."
    try:
        for day, why in lost_days(enrichment, run_records.load(enrichment.name)):
            yield f"{day} {why}. Run the day again, with the ledger's answers."
        yield from lagging(enrichment.facts())
    except TidegateError:  # an unreadable log was reported already
        return
