"""Tries the declared expectations on rows that are made up, before a call is paid."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's usual alias
from pyspark.sql.types import AtomicType, StructField, StructType

from data_quality.catalogue import CheckSpec, named_expectations
from data_quality.rows.column_types import output_columns
from data_quality.rows.written_day import message
from data_quality.slow_imports import quiet
from data_quality.suite import find_exception, validate
from jobs.schema import columns as schema
from jobs.schema.records import DeclaredFacts

SQL = {"row_condition", "unexpected_rows_query"}
_RUN: set[str] = set()  # a stream asks before each batch, and the answer costs Spark jobs


def find_broken(declared: DeclaredFacts, rows: DataFrame) -> list[str]:
    """Return a clause for each expectation that fails to run on rows of the output's types.

    Args:
        declared: The declaration.
        rows: Of the input; only their types are used.

    Raises:
        Exception: Spark runs no rows at all.
    """
    types = output_types(declared, rows.schema)
    asked = f"{declared.expectations}{types.json()}"
    if asked in _RUN:
        return []
    keys = [schema.key(lookup.name) for lookup in declared.lookups]  # of types not known yet
    specs = [
        CheckSpec(name, wanted.severity, "", expectation=wanted)
        for name, wanted in named_expectations(declared)
        if not any(key in str(wanted.arguments) for key in keys)
    ]
    of_sql = {name for name, wanted in named_expectations(declared) if SQL & set(wanted.arguments)}
    made_up = rows.sparkSession.range(0, 2, 1, 1).select(*map(_made_up, types))
    nulls = made_up.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in types))
    with quiet():
        # Spark computes all in one pass: an expectation that fails may fail the others
        found = _failed(specs, made_up) and [
            failed
            for spec in specs
            for failed in _failed([spec], made_up)
            # Spark may have failed for a moment, and a user's SQL may read a text as what a made-up
            # text is not, such as 31.12.2013
            if _failed([spec], nulls if spec.name in of_sql else made_up)
        ]
    if found:
        made_up.count()  # raises what Spark says, if Spark itself fails
    else:
        _RUN.add(asked)
    return found


def _failed(specs: list[CheckSpec], rows: DataFrame) -> list[str]:
    try:
        results, _ = validate(specs, dict, rows)
    except Exception as error:  # noqa: BLE001  # Great Expectations stops at some wrong rules
        return [f"{specs[0].name}: {message(error)}"]
    return [
        f"{result.expectation_config.type}: {why}"
        for result in results.values()
        if (why := find_exception(result.exception_info))
    ]


def output_types(declared: DeclaredFacts, carried: StructType) -> StructType:
    """Return the types of a run's files, for these types of the input."""
    added = StructType.fromDDL(", ".join(column.ddl for column in output_columns(declared)))
    assert isinstance(added, StructType)  # a list of columns always is
    added_names = {field.name for field in added}
    return StructType([*(field for field in carried if field.name not in added_names), *added])


def _made_up(field: StructField) -> Column:
    """Return a value that fails as little as a value can: a text is a number and a date, too."""
    kind = field.dataType
    if not isinstance(kind, AtomicType):
        return F.lit(None).cast(kind).alias(field.name)
    name = kind.simpleString()
    casts = (f"try_cast(string({value}) AS {name})" for value in ("2000 + id", "id"))
    return F.expr(f"coalesce({', '.join(casts)})").alias(field.name)
