"""The answers in the files: one for each key and moment, and the one that is stored under them where answers are kept.

Rows are put together by a number of their key and the time of its answer, and compared by a number of the answer: one
shuffle of three numbers a row. What is stored comes from the caller, as `data_quality` knows no ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it
from pyspark.sql.types import StringType, StructType, TimestampType

from data_quality.digests import digest, named
from data_quality.findings import ROWS_OF_EVIDENCE, Finding, identity_columns, missing, rows, rows_at_fault
from jobs import schema
from jobs.schema import GONE, SOURCE_IDENTITY, DayFacts, DeclaredFacts, LookupFacts

# By a lookup's name, what is stored of the answers in the files; None where nothing is. One row for each key and time
# of an answer: schema.key, published_answered_at, published_status, and the answers, as the stored response gives them
# today: ok, miss or error; NONE where there is no response, GONE where that need not mean anything.
Stored = Callable[[str], DataFrame | None]
ANSWERED = ("ok", "miss")
_PLACE, _ANSWER = "_place", "_answer"  # key and time, and what was answered, as numbers
_ALIKE = "rows of one key whose answer came at one moment have the same answer"
_OF_THE_KEY = "their key has at that time"


def judge(frame: DataFrame, facts: DayFacts, stored: Stored | None) -> dict[str, Finding]:
    """By lookup: whether its answers are those of their keys. One that cannot be judged stops no other."""
    found = {}
    for lookup in facts.declared.lookups:
        if lookup.keys:
            try:
                found[lookup.name] = _judged(frame, facts.declared, lookup, stored(lookup.name) if stored else None)
            except Exception as error:  # noqa: BLE001  # whatever a ledger or Spark says: the check did not run
                found[lookup.name] = Finding.not_run(" ".join(str(error).split())[:300] or repr(error))
    return found


def together(findings: list[Finding]) -> Finding:
    """One finding of several about the same rows: red when one is, else not run when one is not."""
    red = [one for one in findings if one.success is False]
    if not red:
        return next((one for one in findings if one.success is None), findings[0])
    evidence = {str(row): row for one in red for row in one.evidence}
    return replace(
        red[0],
        sentence="; ".join(one.sentence for one in red),
        unexpected_count=max(one.unexpected_count for one in red),
        element_count=max(one.element_count for one in findings),
        evidence=tuple(evidence.values())[:ROWS_OF_EVIDENCE],
    )


def _judged(frame: DataFrame, declared: DeclaredFacts, lookup: LookupFacts, stored: DataFrame | None) -> Finding:
    status, answered_at = schema.published_status(lookup.name), schema.published_answered_at(lookup.name)
    source = schema.source(lookup.name)
    why_not = missing(
        frame, [schema.key(lookup.name), status, answered_at, source, *(column for column, _ in lookup.returns)]
    )
    if why_not:
        return Finding.not_run(why_not)
    answered = frame.where(F.col(status).isin(*ANSWERED) & F.col(answered_at).isNotNull())
    placed = answered.withColumns({_PLACE: _place(frame, lookup), _ANSWER: _answer(frame, lookup)})
    called = F.count_if(F.col(source) == "call").alias("_calls")
    groups = placed.groupBy(_PLACE).agg(
        F.count("*").alias("_rows"), called, F.min(_ANSWER).alias("_low"), F.max(_ANSWER).alias("_high")
    )
    if stored is None:
        groups = groups.withColumns({"_said": F.lit(GONE), "_stored": F.lit(0)})
    else:
        known = stored.select(
            _place(stored, lookup).alias(_PLACE), _answer(stored, lookup).alias("_stored"), F.col(status).alias("_said")
        )
        groups = groups.join(known, _PLACE, "left")
    counted = groups.agg(
        F.sum("_rows").alias("rows"),
        F.sum(F.when(_unlike(), F.col("_rows"))).alias("unlike"),
        F.sum(F.when(F.col("_said") == GONE, F.col("_rows"))).alias("gone"),
    ).collect()[0]
    expected = "for each key and time of an answer the stored one" if stored is not None else _ALIKE
    if counted["unlike"]:
        return _named(placed.join(groups.where(_unlike()), _PLACE), declared, lookup, counted["rows"], expected)
    return _holds(counted["rows"] or 0, counted["gone"] or 0, expected, kept=stored is not None)


def _place(frame: DataFrame, lookup: LookupFacts) -> Column:
    """A number for a key and the time of its answer."""
    key = schema.key(lookup.name)
    kind = cast("StructType", frame.schema[key].dataType)
    parts = [(F.col(key).getField(part.name), part.dataType) for part in kind.fields]
    return digest([*parts, (F.col(schema.published_answered_at(lookup.name)), TimestampType())])


def _answer(frame: DataFrame, lookup: LookupFacts) -> Column:
    """A number for what was answered: the status and the columns."""
    columns = [(F.col(named(column)), frame.schema[column].dataType) for column, _ in lookup.returns]
    return digest([(F.col(schema.published_status(lookup.name)), StringType()), *columns])


def _unlike() -> Column:
    """The groups with a wrong answer. Where nothing is stored, two calls that ended in one µs may have had two."""
    alike = (F.col("_low") == F.col("_high")) | (F.col("_calls") > 1)
    as_stored = (F.col("_low") == F.col("_stored")) & (F.col("_high") == F.col("_stored"))
    return ~F.coalesce(F.when(F.col("_said") == GONE, alike).otherwise(as_stored), F.lit(False))


def _holds(total: int, gone: int, expected: str, *, kept: bool) -> Finding:
    if not kept:
        text = f"{rows(total)} with an answer; those of one key and time have the same; no stored response to compare"
    elif gone:
        text = f"{rows(total - gone)} with the stored answer of their key, {gone:,} whose stored response is gone"
    else:
        text = f"{rows(total)} with an answer, each the stored one of its key"
    return Finding(True, text, 0, total, expected)


def _named(unlike: DataFrame, declared: DeclaredFacts, lookup: LookupFacts, total: int, expected: str) -> Finding:
    """The rows with another answer than the stored one; where none is, those with another than most of their group."""
    group, same = Window.partitionBy(_PLACE), Window.partitionBy(_PLACE, _ANSWER)
    counted = unlike.withColumn("_same", F.count("*").over(same)).withColumn("_most", F.max("_same").over(group))
    tie = F.count_if(F.col("_same") == F.col("_most")).over(group) > F.col("_most")
    minority = (F.col("_same") < F.col("_most")) | tie
    other = F.when(F.col("_said") == GONE, minority).otherwise(~F.col(_ANSWER).eqNullSafe(F.col("_stored")))
    wrong = counted.withColumn("_wrong", other).where("_wrong")
    count = wrong.count()
    text = f"{rows(count)} of {total:,} with another answer than {_OF_THE_KEY}"
    shown = [schema.published_status(lookup.name), schema.source(lookup.name)]
    shown += [schema.published_answered_at(lookup.name), *(named(column) for column, _ in lookup.returns)]
    columns = dict.fromkeys([*identity_columns(declared, unlike), *SOURCE_IDENTITY, *shown])
    return Finding(False, text, count, total, expected).with_evidence(rows_at_fault(wrong, F.lit(True), columns))
