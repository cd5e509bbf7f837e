"""Calls in flight, from the start and the end of every attempt, against the share of each task.

Where a call asks for many keys, the files have the attempts of keys, which wait for one another first. Its requests are
judged as the run counted them where they were sent, the attempts by how many keys may wait or be asked for at once.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it

from data_quality.findings import Finding, identity_columns, missing, rows_at_fault
from jobs import schema
from jobs.schema import PARTITION, SOURCE_IDENTITY, DayFacts, LookupFacts


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
    suspect = [number for number in judged if _over(facts, number, highest.get(number, {}))]
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


def _highest(frame: DataFrame, facts: DayFacts, numbers: list[int]) -> dict[int, dict[int, tuple[int, int]]]:
    """Per lookup and task: the most calls in flight at once, and the attempts made.

    An end sorts before a start of the same µs: the slot was free by then.
    """

    def edges(number: int) -> DataFrame:
        calls = F.explode(schema.attempts(facts.declared.lookups[number].name)).alias("call")
        both = frame.select(F.col(PARTITION).alias("task"), calls).select(
            "task", F.stack(F.lit(2), F.expr("call.start * 2 + 1"), F.expr("call.end * 2")).alias("edge")
        )
        return both.select(F.lit(number).alias("lookup"), "task", "edge")

    events = reduce(lambda one, other: one.unionAll(other), (edges(number) for number in numbers))
    in_time = Window.partitionBy("lookup", "task").orderBy("edge").rowsBetween(Window.unboundedPreceding, 0)
    step = F.when(F.col("edge") % 2 == 1, 1).otherwise(-1)
    peaks = (
        events.withColumn("in_flight", F.sum(step).over(in_time))
        .groupBy("lookup", "task")
        .agg(F.max("in_flight").alias("highest"), (F.count("*") / 2).cast("long").alias("attempts"))
    )
    highest: dict[int, dict[int, tuple[int, int]]] = {}
    for row in peaks.collect():
        highest.setdefault(row["lookup"], {})[row["task"]] = (row["highest"], row["attempts"])
    return highest


def _over(facts: DayFacts, number: int, highest: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """The tasks that had more in flight than their share: the most at once, and the share."""
    shares = dict(enumerate(_allowed(facts, number)))
    return {task: (most, shares.get(task, 0)) for task, (most, _) in highest.items() if most > shares.get(task, 0)}


def _allowed(facts: DayFacts, number: int) -> list[int]:
    """Attempts at once in each task: one per call; of many keys, those of full calls and of one that waits to leave."""
    size = facts.declared.lookups[number].batch_size
    return [share if size == 1 else (share + 1) * size for share in facts.shares[number]]


def requests_held(facts: DayFacts, lookup: str, most_at_once: list[int]) -> Finding:
    """The most requests that each task had in flight, by number, against its share."""
    number = [one.name for one in facts.declared.lookups].index(lookup)
    shares, limit = facts.shares[number], facts.declared.lookups[number].max_concurrency
    expected = f"at most {limit} requests in flight, shared among the tasks as {list(shares[:20])}"
    allowed = dict(enumerate(shares))
    over = [task for task, most in enumerate(most_at_once) if most > allowed.get(task, 0)]
    if not over:
        text = f"at most {max(most_at_once)} requests in flight in a task, of {max(shares)} allowed"
        return Finding(True, text, 0, len(most_at_once), expected)
    tasks = "1 task" if len(over) == 1 else f"{len(over)} tasks"
    first = f"{most_at_once[over[0]]} in task {over[0]}, {allowed.get(over[0], 0)} allowed"
    text = f"{tasks} had more requests in flight than the share: {first}"
    return Finding(False, text, len(over), len(most_at_once), expected)


def _finding(frame: DataFrame, facts: DayFacts, number: int, highest: dict[int, tuple[int, int]]) -> Finding:
    lookup, shares = facts.declared.lookups[number], _allowed(facts, number)
    attempts = sum(made for _, made in highest.values())
    asked = f"{lookup.max_concurrency} calls" if lookup.batch_size == 1 else f"{sum(shares):,} keys"
    expected = f"at most {asked} in flight, shared among the tasks as {shares[:20]}"
    over = _over(facts, number, highest)
    if not over:
        most = max((most for most, _ in highest.values()), default=0)
        text = f"at most {most} in flight in a task, of {max(shares, default=0)} allowed; {attempts:,} attempts"
        return Finding(True, text, 0, attempts, expected)
    task, (most, allowed) = min(over.items(), key=lambda item: (item[0] is None, item[0]))
    rows, count = _attempts_over(frame, facts, number, over)
    text = f"{count:,} attempts began with all slots taken: {most} in flight in task {task}, {allowed} allowed"
    return Finding(False, text, count, attempts, expected).with_evidence(rows)


def _attempts_over(
    frame: DataFrame, facts: DayFacts, number: int, over: dict[int, tuple[int, int]]
) -> tuple[list[dict[str, Any]], int]:
    """The attempts that began when their task's share was already in flight: the first of them, and how many."""
    identity = identity_columns(facts.declared, frame)
    call = F.explode(schema.attempts(facts.declared.lookups[number].name)).alias("call")
    tasks = [(task, allowed) for task, (_, allowed) in over.items()]
    shares = F.broadcast(frame.sparkSession.createDataFrame(tasks, "_task INT, allowed INT"))
    calls = frame.join(shares, F.col(PARTITION).eqNullSafe(F.col("_task"))).select(*identity, "allowed", call)
    edges = calls.withColumn("edge", F.explode(F.array(F.expr("call.start * 2 + 1"), F.expr("call.end * 2"))))
    in_time = Window.partitionBy(PARTITION).orderBy("edge").rowsBetween(Window.unboundedPreceding, 0)
    step = F.when(F.col("edge") % 2 == 1, 1).otherwise(-1)
    late = edges.withColumn("in_flight", F.sum(step).over(in_time)).where(
        (F.col("edge") % 2 == 1) & (F.col("in_flight") > F.col("allowed"))
    )
    shown: list[str | Column] = [
        *identity,
        "in_flight",
        "allowed",
        F.col("call.start").alias("start_us"),
        F.col("call.end").alias("end_us"),
    ]
    return rows_at_fault(late, F.lit(True), shown), late.count()
