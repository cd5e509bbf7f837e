"""The users' expectations: made by Great Expectations, or refused before a run makes a call.

Great Expectations takes some that it judges wrongly, or that it cannot judge in Spark.
"""

import re
import warnings
from collections.abc import Mapping
from typing import Any

import great_expectations.expectations as gxe
from great_expectations.execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.expectation import (
    ColumnAggregateExpectation,
    ColumnMapExpectation,
    ColumnPairMapExpectation,
    MulticolumnMapExpectation,
)
from great_expectations.expectations.registry import get_metric_provider

from data_quality.catalogue import CheckSpec
from data_quality.rows.written_day import LONGEST
from jobs.schema.records import ExpectationFacts
from jobs.wording import one_line

SQL = "write an unexpected_rows_expectation"
OF_EACH_ROW = (ColumnMapExpectation, ColumnPairMapExpectation, MulticolumnMapExpectation)
OF_ROWS = (ColumnAggregateExpectation, *OF_EACH_ROW)
_KINDS = {name.lower(): kind for name, kind in vars(gxe).items()}
_SPARK = object.__new__(SparkDFExecutionEngine)  # asked for its rules only, which need no session


def make_expectation(wanted: ExpectationFacts, common: Mapping[str, Any]) -> Any:
    """Return the expectation with these further fields, or why it is refused."""
    kind = _find_kind(wanted.type)
    if kind is None:
        return f"Great Expectations has no {wanted.type}"
    try:
        # a suite takes no expectation with an id
        made = kind(**{**wanted.arguments, **common, "id": None})
        _require_able(made, wanted.arguments)
        if values := _value_set(made):
            made.value_set = [*dict.fromkeys(values)]  # a repeated value would count as missing
    except Exception as wrong:  # noqa: BLE001  # Great Expectations raises errors of all kinds
        return f"{wanted.type}: {one_line(str(wrong), LONGEST)}"
    return made


def is_of_rows(spec: CheckSpec) -> bool:
    """Return whether the check expects values in rows, and nothing of the table as a whole."""
    kind = _kind(spec)
    return kind is not None and issubclass(kind, OF_ROWS)


def is_query(spec: CheckSpec) -> bool:
    """Return whether the check expects a query to find no row."""
    return _kind(spec) is gxe.UnexpectedRowsExpectation


def _kind(spec: CheckSpec) -> Any:
    """Return the class of the check's expectation; None for a check of Tidegate."""
    return None if spec.expectation is None else _find_kind(spec.expectation.type)


def _find_kind(name: str) -> Any:
    """Return the class of an expectation; None if Great Expectations has none of this name."""
    return _KINDS.get(str(name).replace("_", "").lower())


def _value_set(made: Any) -> list[Any]:
    values = getattr(made, "value_set", None)
    return values if isinstance(values, list) else []


def _require_able(made: Any, given: Mapping[str, Any]) -> None:
    """Raise ValueError for what Great Expectations takes and judges wrongly, or not in Spark."""
    if made.suite_parameter_options:
        raise ValueError("write the value instead of a $PARAMETER")
    _require_bounds(made, given)
    if made.expectation_type.endswith(("_increasing", "_decreasing")):
        raise ValueError(f"the rows have no order in Spark; {SQL} with lag() over (ORDER BY ...)")
    if getattr(made, "value_pairs_set", None) and made.row_condition is not None:
        raise ValueError(f"it ignores row_condition; {SQL}")
    if None in _value_set(made):
        raise ValueError("value_set has None, which no rule about values finds; leave it out")
    for text in [getattr(made, "regex", ""), *getattr(made, "regex_list", ())]:
        if broken := _find_broken(text):
            raise ValueError(f"regex {text!r} is broken: {broken}")
    for name in made.get_validation_dependencies(_SPARK).get_metric_names():
        get_metric_provider(name, _SPARK)  # raises for a rule that does not exist for Spark


def _require_bounds(made: Any, given: Mapping[str, Any]) -> None:
    low, high = (getattr(made, name, 0) for name in ("min_value", "max_value"))
    if low is None and high is None and made.expectation_type.endswith("_between"):
        raise ValueError("it needs min_value or max_value")
    if low is not None and type(low) is type(high) and low > high:
        raise ValueError("min_value is above max_value")
    for name in ("min_value", "max_value", "value"):
        wanted, taken = given.get(name), getattr(made, name, None)
        if isinstance(wanted, int | float) and wanted != taken:
            cure = SQL if isinstance(wanted, int) else "write a whole number"
            raise ValueError(f"{name} {wanted} is rounded to {taken:.0f}; {cure}")


def _find_broken(pattern: str) -> str:
    """Return what breaks a pattern in Java and Python alike; else empty."""
    try:
        with warnings.catch_warnings(action="error"):  # a `[` in a set, which Java reads otherwise
            re.compile(pattern)
    except (re.error, FutureWarning) as error:
        why = str(error)
        return why if why.startswith(("missing )", "unbalanced", "unterm")) else ""
    return ""
