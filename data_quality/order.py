"""Order and watermarks, task by task: the order of the rows in the files, the watermarks as the event times put them.

Both in one pass: the rows go to their task once, are put in the order of the files, then in the order of the input.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it

from data_quality.findings import Finding, identity_columns, missing, rows, rows_at_fault
from data_quality.run_output import POSITION, event_time_ms, read_input
from jobs.schema import (
    INPUT_SEQ,
    LATE,
    OUTPUT_SEQ,
    PARTITION,
    SEGMENT,
    SOURCE_FILE,
    SOURCE_IDENTITY,
    SOURCE_ROW,
    DayFacts,
)

ORDER, WATERMARKS, LATE_ROWS = "order_held", "watermarks_not_crossed", "late_rows_marked"
_TIME, _GHOST = "_event_time_ms", "_ghost"  # a ghost: a lost row, put back only so that its event time counts


@dataclass(frozen=True)
class Judge:
    """What is to be judged of one day, and on what."""

    facts: DayFacts
    frame: DataFrame
    in_files: str  # column that gives the order of the files; the writer's claim where the frame has no other

    @property
    def mode(self) -> str:
        return self.facts.declared.mode

    @property
    def key(self) -> list[str]:
        return [f"`{name}`" for name in self.facts.declared.order_key] if self.mode == "key_ordered" else []


def judge(frame: DataFrame, facts: DayFacts) -> dict[str, Finding]:
    """Findings of `order_held`, `watermarks_not_crossed`, `late_rows_marked`: those that the declaration asks for."""
    declared = facts.declared
    in_files = POSITION if POSITION in frame.columns else OUTPUT_SEQ
    job = Judge(facts, frame, in_files)
    asked = ([ORDER] if declared.mode != "unordered" else []) + ([WATERMARKS, LATE_ROWS] if declared.event_time else [])
    needs = [PARTITION, INPUT_SEQ, OUTPUT_SEQ, SEGMENT, LATE, *(declared.order_key if job.key else ())]
    needs += [declared.event_time.column] if declared.event_time else []
    why_not = missing(frame, needs)
    if why_not or not asked:
        return {check: Finding.not_run(why_not or "") for check in asked}
    counted = _count(job, None)
    if declared.event_time and counted["gaps"]:
        # A lost row moved the watermarks too. Without it every later row of its task would look wrong.
        ghosts = _lost_rows(job)
        counted = _count(job, ghosts)
    else:
        ghosts = None
    found = {}
    if ORDER in asked:
        found[ORDER] = _order_held(job, counted)
    if declared.event_time:
        found[WATERMARKS] = _watermarks_not_crossed(job, counted, ghosts)
        found[LATE_ROWS] = _late_rows_marked(job, counted, ghosts)
    return found


# -- the columns -------------------------------------------------------------------------------------------------------
def _narrow(job: Judge, extra: list[str]) -> DataFrame:
    """The columns that order is judged by, and those that evidence shows."""
    frame, event_time = job.frame, job.facts.declared.event_time
    moment = event_time_ms(frame, event_time.column) if event_time else F.lit(None).cast("long")
    names = [PARTITION, INPUT_SEQ, OUTPUT_SEQ, SEGMENT, LATE, job.in_files, *job.key, *extra]
    return frame.select(*dict.fromkeys(names), moment.alias(_TIME), F.lit(False).alias(_GHOST))


def _by_files(job: Judge) -> tuple[WindowSpec, WindowSpec]:
    """A task's rows in the order of its files; and those among which the declared order holds."""
    task = Window.partitionBy(PARTITION).orderBy(job.in_files)
    return task, Window.partitionBy(PARTITION, SEGMENT, *job.key).orderBy(job.in_files) if job.key else task


def _with_input_order(frame: DataFrame, bound_ms: int) -> DataFrame:
    """Adds what the event times say: `_before_ms` (largest one before), `_true_segment` and `_true_late`.

    A watermark follows every record that raises the largest event time: largest - bound - 1. A row doubled counts once:
    the frames end before the row's own input_seq, and only its first copy raises anything.
    """
    by_input = Window.partitionBy(PARTITION).orderBy(INPUT_SEQ)
    earlier = by_input.rangeBetween(Window.unboundedPreceding, -1)
    seq, moment, before = F.col(INPUT_SEQ), F.col(_TIME), F.col("_before_ms")
    frame = frame.withColumn("_previous_seq", F.lag(INPUT_SEQ).over(by_input)).withColumn(
        "_before_ms", F.max(_TIME).over(earlier)
    )
    first_copy = ~F.col("_previous_seq").eqNullSafe(seq)
    raises = first_copy & moment.isNotNull() & (before.isNull() | (moment > before))
    frame = frame.withColumn("_true_segment", F.coalesce(F.count_if(raises).over(earlier), F.lit(0)))
    late = moment.isNotNull() & before.isNotNull() & (moment <= before - F.lit(bound_ms + 1))
    return frame.withColumn("_true_late", F.coalesce(late, F.lit(False)))


def _bound_ms(job: Judge) -> int:
    event_time = job.facts.declared.event_time
    return round(event_time.max_out_of_orderness * 1000) if event_time else 0


# -- one pass ----------------------------------------------------------------------------------------------------------
def _judged(job: Judge, ghosts: DataFrame | None, extra: list[str]) -> DataFrame:
    """Every row with what it breaks: `_inverted`, `_crossed`, `_claimed`, and with an event time the true marks too."""
    task, ordered = _by_files(job)
    frame = _narrow(job, extra)
    for flag, column, window in (
        ("_inverted", INPUT_SEQ, ordered),
        ("_crossed", SEGMENT, task),
        ("_claimed", OUTPUT_SEQ, task),
    ):
        value = F.col(column)
        frame = frame.withColumn(flag, F.coalesce(F.lag(column).over(window) > value, value.isNull()))
    if job.facts.declared.event_time is None:
        return frame
    if ghosts is not None:
        frame = frame.unionByName(ghosts, allowMissingColumns=True)
    return _with_input_order(frame, _bound_ms(job))


def _count(job: Judge, ghosts: DataFrame | None) -> dict[str, int]:
    """How many rows break each rule; `gaps`: places where an input_seq is missing."""
    measures = {
        "rows": F.count_if(~F.col(_GHOST)),
        "tasks": F.count_distinct(PARTITION),
        "segments": F.max(SEGMENT),
        "marked": F.count_if(LATE),
        "inversions": F.count_if("_inverted"),
        "crossings": F.count_if("_crossed"),
        "claims": F.count_if("_claimed"),
    }
    if job.facts.declared.event_time:
        measures |= {
            "gaps": F.count_if(F.col(INPUT_SEQ) - F.coalesce(F.col("_previous_seq"), F.lit(-1)) > 1),
            "misplaced": F.count_if(_misplaced()),
            "mismarked": F.count_if(_mismarked()),
        }
    counts = _judged(job, ghosts, []).agg(*(column.alias(name) for name, column in measures.items())).collect()[0]
    return {name: count or 0 for name, count in counts.asDict().items()}


def _misplaced() -> Column:
    return ~F.col(_GHOST) & ~F.col(SEGMENT).eqNullSafe(F.col("_true_segment"))


def _mismarked() -> Column:
    return ~F.col(_GHOST) & ~F.col(LATE).eqNullSafe(F.col("_true_late"))


def _lost_rows(job: Judge) -> DataFrame:
    """The rows of the input that the files do not have, at the place in their task that their neighbours leave open.

    Within a task the rows of one input file follow each other, so the nearest row before in that file, or else the
    nearest one after, gives task and input_seq.
    """
    event_time = job.facts.declared.event_time
    assert event_time is not None
    source = read_input(job.frame.sparkSession, job.facts)
    given = source.select(*SOURCE_IDENTITY, event_time_ms(source, event_time.column).alias(_TIME))
    file = F.regexp_replace(SOURCE_FILE, "^file:/+", "file:/").alias(SOURCE_FILE)
    there = job.frame.select(file, SOURCE_ROW, PARTITION, INPUT_SEQ, F.lit(True).alias("_there"))
    both = given.join(there, list(SOURCE_IDENTITY), "left")
    place = F.when(F.col("_there"), F.struct(PARTITION, (F.col(INPUT_SEQ) - F.col(SOURCE_ROW)).alias("offset")))
    # The nearest after is the last before in the other direction: Spark walks a frame that ends with the file anew for
    # every row.
    in_file, gone_by = Window.partitionBy(SOURCE_FILE), (Window.unboundedPreceding, -1)
    before = F.last(place, ignorenulls=True).over(in_file.orderBy(SOURCE_ROW).rowsBetween(*gone_by))
    after = F.last(place, ignorenulls=True).over(in_file.orderBy(F.desc(SOURCE_ROW)).rowsBetween(*gone_by))
    lost = both.withColumn("_before", before).withColumn("_after", after).where(F.col("_there").isNull())
    taken = job.frame.select(PARTITION, INPUT_SEQ).distinct().withColumn("_taken", F.lit(True))

    def placed(at: str, choice: int) -> DataFrame:
        seq = (F.col(at)["offset"] + F.col(SOURCE_ROW)).alias(INPUT_SEQ)
        return lost.where(F.col(at).isNotNull()).select(
            *SOURCE_IDENTITY, F.col(at)[PARTITION].alias(PARTITION), seq, _TIME, F.lit(choice).alias("_choice")
        )

    # Behind the last row of a task there is always room; before its first there is none. So the row after decides.
    open_places = (
        placed("_after", 1)
        .unionByName(placed("_before", 2))
        .join(taken, [PARTITION, INPUT_SEQ], "left_anti")
        .where(f"{INPUT_SEQ} >= 0")
    )
    chosen = F.min_by(F.struct(PARTITION, INPUT_SEQ, _TIME), "_choice").alias("chosen")
    return open_places.groupBy(*SOURCE_IDENTITY).agg(chosen).select("chosen.*", F.lit(True).alias(_GHOST))


# -- findings ----------------------------------------------------------------------------------------------------------
def _order_held(job: Judge, counted: dict[str, int]) -> Finding:
    """The order of the files against the input_seq, and the writer's claim (output_seq) against that of the files."""
    among = (
        f"rows of the same {', '.join(job.facts.declared.order_key)} in a segment" if job.key else "the rows of a task"
    )
    expected = f"in the files, {among} follow their input_seq; output_seq follows the files"
    holds = f"{rows(counted['rows'])} of {counted['tasks']} tasks in order"
    wrong = f"{rows(counted['inversions'])} out of order, {counted['claims']:,} with another output_seq than the files"
    finding = Finding.judged(holds, wrong, counted["inversions"] + counted["claims"], counted["rows"], expected)
    if finding.success:
        return finding
    _, ordered = _by_files(job)
    if counted["inversions"]:
        return finding.with_evidence(_out_of_place(job, INPUT_SEQ, ordered))
    return finding.with_evidence(_out_of_place(job, OUTPUT_SEQ, _by_files(job)[0]))


def _watermarks_not_crossed(job: Judge, counted: dict[str, int], ghosts: DataFrame | None) -> Finding:
    # Where order is judged too, the writer's claim about it is judged there.
    claims = counted["claims"] if job.mode == "unordered" else 0
    expected = "segments never go back along the files, and begin where the largest event time grows"
    segments = counted["segments"] + 1
    holds = f"{rows(counted['rows'])} of {counted['tasks']} tasks, up to {segments:,} segments in one, none crossed"
    parts = [f"{rows(counted['crossings'])} on the wrong side of a watermark" if counted["crossings"] else ""]
    parts += [
        f"{rows(counted['misplaced'])} in another segment than the event times say" if counted["misplaced"] else ""
    ]
    parts += [f"{rows(claims)} with another output_seq than the files" if claims else ""]
    wrong = ", ".join(part for part in parts if part)
    unexpected = counted["crossings"] + counted["misplaced"] + claims
    finding = Finding.judged(holds, wrong, unexpected, counted["rows"], expected)
    if finding.success:
        return finding
    if counted["crossings"]:
        return finding.with_evidence(_out_of_place(job, SEGMENT, _by_files(job)[0]))
    if counted["misplaced"]:
        return finding.with_evidence(_marked_wrongly(job, ghosts, _misplaced(), SEGMENT, "_true_segment"))
    return finding.with_evidence(_out_of_place(job, OUTPUT_SEQ, _by_files(job)[0]))


def _late_rows_marked(job: Judge, counted: dict[str, int], ghosts: DataFrame | None) -> Finding:
    holds = f"{rows(counted['marked'])} late of {counted['rows']:,}, each marked"
    wrong = f"{rows(counted['mismarked'])} marked otherwise than the event times say"
    expected = (
        f"late: event time at or before the last watermark before it, {_bound_ms(job) / 1000:g} s behind the largest"
    )
    finding = Finding.judged(holds, wrong, counted["mismarked"], counted["rows"], expected)
    return (
        finding
        if finding.success
        else finding.with_evidence(_marked_wrongly(job, ghosts, _mismarked(), LATE, "_true_late"))
    )


def _marked_wrongly(
    job: Judge, ghosts: DataFrame | None, at_fault: Column, mark: str, truth: str
) -> list[dict[str, object]]:

    event_time = job.facts.declared.event_time
    assert event_time is not None
    identity = identity_columns(job.facts.declared, job.frame)
    shown: list[str | Column] = [*identity, mark, F.col(truth).alias(f"true{mark}"), event_time.column]
    return rows_at_fault(_judged(job, ghosts, [*identity, event_time.column]), at_fault, shown)


def _out_of_place(job: Judge, column: str, window: WindowSpec) -> list[dict[str, object]]:
    """The rows without which the column would not go back along the window: where it drops, one of the two neighbours.

    The row after the drop came too late if the next one goes on from before it; else the row before came too soon.
    """
    identity = identity_columns(job.facts.declared, job.frame)
    value = F.col(column)
    before, second_before = F.lag(column).over(window), F.lag(column, 2).over(window)
    after, second_after = F.lead(column).over(window), F.lead(column, 2).over(window)

    def surely(condition: Column) -> Column:
        return F.coalesce(condition, F.lit(False))

    came_late = surely(before > value) & (after.isNull() | surely(after >= before) | surely(second_before > value))
    next_came_late = second_after.isNull() | surely(second_after >= value) | surely(before > after)
    came_soon = surely(after < value) & ~next_came_late
    frame = _narrow(job, identity).withColumn("_before", before)
    frame = frame.withColumn("_at_fault", came_late | came_soon | value.isNull())
    shown: list[str | Column] = [*dict.fromkeys([*identity, SEGMENT, column])]
    return rows_at_fault(frame, F.col("_at_fault"), [*shown, F.col("_before").alias(f"follows{column}")])
