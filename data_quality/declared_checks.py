"""Finds declared checks that cannot be made, before a run makes a call."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from data_quality import catalogue
from data_quality.rows.column_types import output_columns
from data_quality.slow_imports import OF_GREAT_EXPECTATIONS, import_when_used, quiet
from jobs.schema import columns as schema
from jobs.schema.records import DeclaredFacts, ExpectationFacts
from jobs.wording import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMN_ARGUMENTS = ("column", "column_A", "column_B")
IN_CONDITION = re.compile(r"""\bcol\(["'](.*?)["']\)""")


def find_wrong_checks(declared: DeclaredFacts, columns: Collection[str] | None) -> list[str]:
    """Return a sentence for each declared check that cannot be made, with the columns of the input,
    or None if they are unknown.
    """
    severity = wrong_severity(declared)
    return [*([severity] if severity else ()), *wrong_expectations(declared, columns)]


def wrong_severity(declared: DeclaredFacts) -> str:
    """Return why `severities` names no check of the enrichment, in a sentence; else empty."""
    try:
        catalogue.checks(declared)
    except ValueError as error:
        return str(error).removeprefix(f"{declared.enrichment}: ")
    return ""


def wrong_expectations(
    declared: DeclaredFacts, columns: Collection[str] | None, rows: DataFrame | None = None
) -> list[str]:
    """Return a sentence for each expectation that could not run after the calls.

    It imports Great Expectations, which takes seconds, if there are expectations.

    Args:
        declared: The declaration.
        columns: The columns of the input; None if they are unknown.
        rows: The input: Spark tries the expectations on rows of its types; None tries none.
    """
    if not declared.expectations:
        return []
    if sys.flags.optimize > 1:
        needs = "Great Expectations needs docstrings, which Python removes here"
        return [f"expectations: {needs}: unset PYTHONOPTIMIZE, and leave out -OO."]
    import_when_used(*OF_GREAT_EXPECTATIONS)
    with quiet():
        from data_quality.users_expectations import make_expectation

    known = {*(columns or ()), *(column.name for column in output_columns(declared))}
    known |= {schema.key(lookup.name) for lookup in declared.lookups}
    lower, found = {name.lower() for name in known}, []
    for wanted in declared.expectations:
        with quiet():
            made = make_expectation(wanted, {})
        why = made if isinstance(made, str) else ""
        named = () if why or columns is None else _columns(wanted)
        for name in (name for name in named if name.lower() not in lower):
            why = f"{wanted.type}: the table has no column {name!r}.{did_you_mean(name, known)}"
        if why:
            found.append(why)
    if rows is not None and not found:
        from data_quality.expectation_trials import find_broken

        found = find_broken(declared, rows)
    return [f"expectations: {why}{'' if why[-1] in '.?' else '.'}" for why in found]


def _columns(wanted: ExpectationFacts) -> Iterator[str]:
    given = wanted.arguments
    named = (*(given.get(name) for name in COLUMN_ARGUMENTS), *given.get("column_list", ()))
    yield from (name for name in named if isinstance(name, str))
    yield from IN_CONDITION.findall(str(given.get("row_condition", "")))
