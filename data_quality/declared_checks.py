"""Finds declared checks that cannot be made, before a run makes a call."""

from collections.abc import Collection, Iterator

from data_quality import catalogue
from data_quality.slow_imports import OF_GREAT_EXPECTATIONS, import_when_used, quiet
from jobs.schema.records import DeclaredFacts, ExpectationFacts

OF_ONE = ("column", "column_A", "column_B")
AUDIT = "_"  # the first character of its columns


def find_wrong_checks(declared: DeclaredFacts, columns: Collection[str] | None) -> list[str]:
    """Returns a sentence for each declared check that cannot be made, as the functions below."""
    severity = wrong_severity(declared)
    return [*([severity] if severity else ()), *wrong_expectations(declared, columns)]


def wrong_severity(declared: DeclaredFacts) -> str:
    """Returns why `severities` names no check of the enrichment, in a sentence; else empty."""
    try:
        catalogue.checks(declared)
    except ValueError as error:
        return str(error).removeprefix(f"{declared.enrichment}: ")
    return ""


def wrong_expectations(declared: DeclaredFacts, columns: Collection[str] | None) -> list[str]:
    """Returns a sentence for each expectation that Great Expectations would refuse after the calls.

    It imports Great Expectations, which takes seconds, if there are expectations.

    Args:
        declared: The declaration.
        columns: The columns of the input; None if they are unknown.
    """
    if not declared.expectations:
        return []
    import_when_used(*OF_GREAT_EXPECTATIONS)
    with quiet():
        from data_quality.suite import find_refusal

    known = {name.lower() for name in columns or ()}
    known |= {column.name.lower() for column in declared.published_answers()}
    found = []
    for wanted in declared.expectations:
        with quiet():
            why = find_refusal(wanted)
        missing = [name for name in _columns(wanted) if name.lower() not in known]
        if not why and missing and columns is not None:
            why = f"{wanted.type}: the table has no column {missing[0]!r}"
        if why:
            found.append(f"expectations: {why.removesuffix('.')}.")
    return found


def _columns(wanted: ExpectationFacts) -> Iterator[str]:
    given = wanted.arguments
    names = [given[name] for name in OF_ONE if name in given]
    for name in (*names, *given.get("column_list", ())):
        if isinstance(name, str) and not name.startswith(AUDIT):
            yield name
