"""Calls in flight, from the start and the end of every attempt, against the share of each task.

Tasks leave to others what their last rows need no more, and all at their end. Each says by its own clock since when it
has more or less, so each is judged by one clock; that all shares together are no more than was allowed follows from the
order in which they were given.

Where a call asks for many keys, the files have the attempts of keys, which wait for one another first. Its requests are
judged as the run counted them where they were sent, the attempts by how many keys may wait or be asked for at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it

from data_quality.findings import Finding, identity_columns, missing, rows_at_fault
from jobs import schema
from jobs.schema import PARTITION, SOURCE_IDENTITY, DayFacts, LookupFacts

_ALLOWANCE = pa.schema(
    [("lookup", pa.int32()), ("task", pa.int32()), ("edge", pa.int64()), ("calls", pa.int32()), ("step", pa.int32())]
)


def judge(frame: DataFrame, facts: DayFacts) -> dict[str, Finding]:
    """One finding per lookup. All lookups together: one sort of all starts and ends, task by task."""
    found, judged = {}, []
    for number, lookup in enumerate(facts.declared.lookups):
        why_not = missing(frame, [PARTITION, schema.attempts(lookup.name)])
        if why_not is None and number >= len(facts.shares):
            why_not = "the run does not say how many calls each task was allowed"
        if why_not:
            found[_check(lookup)] = Finding.not_run(why_not)
        else:
            judged.append(number)
    if not judged:
        return found
    highest = _highest(frame, facts, judged)
    suspect = [number for number in judged if _over(highest.get(number, {}))]
    if suspect and not missing(frame, SOURCE_IDENTITY):
        # A row doubled in the files did not call twice: the same attempts of the same row count once.
        calls = [schema.attempts(facts.declared.lookups[number].name) for number in suspect]
        frame = frame.dropDuplicates([PARTITION, *SOURCE_IDENTITY, *calls])
        highest |= _highest(frame, facts, suspect)
    for number in judged:
        lookup = facts.declared.lookups[number]
        found[_check(lookup)] = _finding(frame, facts, number, highest.get(number, {}))
    return found


def _check(lookup: LookupFacts) -> str:
    return f"{lookup.name}__concurrency_held"


class Peak(NamedTuple):
    """Of one lookup in one task."""

    over: int  # the most in flight beyond what the task was allowed at that moment; 0 or less: never
    most: int  # in flight at once
    attempts: int  # made


def _highest(frame: DataFrame, facts: DayFacts, numbers: list[int]) -> dict[int, dict[int, Peak]]:
    """Per lookup and task.

    An end sorts before a start of the same µs: the slot was free by then.
    """

    def edges(number: int) -> DataFrame:
        calls = F.explode(schema.attempts(facts.declared.lookups[number].name)).alias("call")
        both = frame.select(F.col(PARTITION).alias("task"), calls).select(
            "task", F.stack(F.lit(2), F.expr("call.start * 2 + 1"), F.expr("call.end * 2")).alias("edge")
        )
        return both.select(F.lit(number).alias("lookup"), "task", "edge", _step().alias("calls"), _step().alias("step"))

    of_calls = reduce(lambda one, other: one.unionAll(other), (edges(number) for number in numbers))
    over_time = Window.partitionBy("lookup", "task").orderBy("edge").rowsBetween(Window.unboundedPreceding, 0)
    peaks = (
        of_calls.unionAll(_allowances(frame, facts, numbers))
        .select("*", F.sum("step").over(over_time).alias("over"), F.sum("calls").over(over_time).alias("in_flight"))
        .groupBy("lookup", "task")
        .agg(F.max("over").alias("over"), F.max("in_flight").alias("most"), F.sum(F.abs("calls")).alias("edges"))
    )
    highest: dict[int, dict[int, Peak]] = {}
    for row in peaks.where("edges > 0").collect():
        peak = Peak(row["over"], row["most"], row["edges"] // 2)
        highest.setdefault(row["lookup"], {})[row["task"]] = peak
    return highest


def _step() -> Column:
    return F.when(F.col("edge") % 2 == 1, 1).otherwise(-1)


def _allowances(frame: DataFrame, facts: DayFacts, numbers: list[int]) -> DataFrame:
    """What each task was allowed as edges among those of the calls: what is allowed is as many that have ended."""
    rows = [
        dict(zip(_ALLOWANCE.names, (number, *step), strict=True))
        for number in numbers
        for step in _allowed_in_time(facts, number)
    ]
    return frame.sparkSession.createDataFrame(pa.Table.from_pylist(rows, _ALLOWANCE))


def _allowed_in_time(facts: DayFacts, number: int) -> Iterator[tuple[int, int, int, int]]:
    """Task, edge, no call, and what is taken from what counts as in flight."""
    now = dict(enumerate(_allowed(facts, number)))
    yield from ((task, 0, 0, -allowed) for task, allowed in now.items())
    for given in facts.shares_given:
        before = now.get(given.task, 0)
        now[given.task] = allowed = _attempts_of(given.shares[number], facts.declared.lookups[number].batch_size)
        yield given.task, given.since * 2 + (allowed < before), 0, before - allowed


def _over(highest: dict[int, Peak]) -> dict[int, Peak]:
    """The tasks that had more in flight than they were allowed."""
    return {task: peak for task, peak in highest.items() if peak.over > 0}


def _allowed(facts: DayFacts, number: int) -> list[int]:
    """Attempts at once in each task, at first."""
    return [_attempts_of(share, facts.declared.lookups[number].batch_size) for share in facts.shares[number]]


def _attempts_of(share: int, size: int) -> int:
    """One per call; of many keys, those of full calls and of one that waits to leave."""
    return share if size == 1 or not share else (share + 1) * size


def _largest(facts: DayFacts, number: int) -> dict[int, int]:
    """The largest share that each task ever had."""
    largest = dict(enumerate(facts.shares[number]))
    for given in facts.shares_given:
        largest[given.task] = max(given.shares[number], largest.get(given.task, 0))
    return largest


def _given_too_much(facts: DayFacts, number: int) -> str | None:
    """Whether all shares together were ever more than at first."""
    now = dict(enumerate(facts.shares[number]))
    allowed = sum(now.values())
    for given in facts.shares_given:
        now[given.task] = given.shares[number]
        if (together := sum(now.values())) > allowed:
            return f"the tasks were given {together} calls in flight together, {allowed} allowed"
    return None


def requests_held(facts: DayFacts, lookup: str, most_at_once: list[int]) -> Finding:
    """The most requests that each task had in flight, by number, against its largest share."""
    number = [one.name for one in facts.declared.lookups].index(lookup)
    limit, allowed = facts.declared.lookups[number].max_concurrency, _largest(facts, number)
    expected = f"at most {limit} requests in flight, shared among the tasks as {list(facts.shares[number][:20])}"
    over = [task for task, most in enumerate(most_at_once) if most > allowed.get(task, 0)]
    if not over:
        text = f"at most {max(most_at_once)} requests in flight in a task, of {max(allowed.values())} allowed"
        return Finding(True, text, 0, len(most_at_once), expected)
    tasks = "1 task" if len(over) == 1 else f"{len(over)} tasks"
    first = f"{most_at_once[over[0]]} in task {over[0]}, {allowed.get(over[0], 0)} allowed"
    text = f"{tasks} had more requests in flight than the share: {first}"
    return Finding(False, text, len(over), len(most_at_once), expected)


def _finding(frame: DataFrame, facts: DayFacts, number: int, highest: dict[int, Peak]) -> Finding:
    lookup, shares = facts.declared.lookups[number], _allowed(facts, number)
    attempts = sum(peak.attempts for peak in highest.values())
    asked = f"{lookup.max_concurrency} calls" if lookup.batch_size == 1 else f"{sum(shares):,} keys"
    expected = f"at most {asked} in flight, shared among the tasks as {shares[:20]}"
    if (too_much := _given_too_much(facts, number)) is not None:
        return Finding(False, too_much, 1, attempts, expected)
    over = _over(highest)
    if not over:
        most = max((peak.most for peak in highest.values()), default=0)
        largest = max((_attempts_of(share, lookup.batch_size) for share in _largest(facts, number).values()), default=0)
        text = f"at most {most} in flight in a task, of {largest} allowed; {attempts:,} attempts"
        return Finding(True, text, 0, attempts, expected)
    task, peak = min(over.items(), key=lambda item: (item[0] is None, item[0]))
    rows, count = _attempts_over(frame, facts, number, [*over])
    beyond = f"{peak.over} more in flight in task {task} than allowed"
    text = f"{count:,} attempts began with all slots taken: {beyond}"
    return Finding(False, text, count, attempts, expected).with_evidence(rows)


def _attempts_over(
    frame: DataFrame, facts: DayFacts, number: int, tasks: list[int | None]
) -> tuple[list[dict[str, Any]], int]:
    """The attempts that began when all that their task was allowed was in flight: the first of them, and how many."""
    identity = identity_columns(facts.declared, frame)
    call = F.explode(schema.attempts(facts.declared.lookups[number].name)).alias("call")
    calls = frame.where(F.col(PARTITION).isNull() | F.col(PARTITION).isin([one for one in tasks if one is not None]))
    edges = calls.select(*identity, call).withColumn(
        "edge", F.explode(F.array(F.expr("call.start * 2 + 1"), F.expr("call.end * 2")))
    )
    allowances = _allowances(frame, facts, [number]).withColumnRenamed("task", PARTITION)
    over_time = Window.partitionBy(PARTITION).orderBy("edge").rowsBetween(Window.unboundedPreceding, 0)
    late = (
        edges.select("*", _step().alias("calls"), _step().alias("step"))
        .unionByName(allowances.drop("lookup"), allowMissingColumns=True)
        .withColumn("in_flight", F.sum("calls").over(over_time))
        .withColumn("allowed", F.col("in_flight") - F.sum("step").over(over_time))
        .where((F.col("calls") == 1) & (F.col("in_flight") > F.col("allowed")))
    )
    shown: list[str | Column] = [
        *identity,
        "in_flight",
        "allowed",
        F.col("call.start").alias("start_us"),
        F.col("call.end").alias("end_us"),
    ]
    return rows_at_fault(late, F.lit(True), shown), late.count()
