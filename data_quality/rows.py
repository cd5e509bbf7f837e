"""What can be judged row by row: outcomes, time limits, retries, answers. One aggregation over the files for all of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from jobs import schema
from jobs.schema import OUTCOMES, DayFacts, DeclaredFacts, LookupFacts

from data_quality.findings import Finding, identity_columns, missing, plain, rows, rows_at_fault, share

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TICK_MS = 1.0  # two readings of one clock, rounded: a wait shorter than declared by less than this is none
ANSWERED = ("ok", "fallback")  # outcomes with which an answer may stand in the row


@dataclass(frozen=True)
class Rule:
    """A rule about single rows: the rows that break it, and what to show of them."""

    check: str
    at_fault: Column
    evidence: tuple[str, ...]
    needs: tuple[str, ...]


def judge(frame: DataFrame, facts: DayFacts) -> dict[str, Any]:
    """Findings by check name; beside them `counts`: rows, and the rows of each outcome for each lookup."""
    from pyspark.sql import functions as F

    declared = facts.declared
    found: dict[str, Any] = {}
    rules = []
    for rule in _rules(frame, declared):
        why_not = missing(frame, rule.needs)
        if why_not:
            found[rule.check] = Finding.not_run(why_not)
        else:
            rules.append(rule)
    measures: dict[str, Column] = {"rows": F.count("*")}
    measures |= {f"fault:{number}": F.count_if(rule.at_fault) for number, rule in enumerate(rules)}
    for lookup in declared.lookups:
        measures |= _measures(frame, lookup)
    counted = frame.agg(*(column.alias(name) for name, column in measures.items())).collect()[0].asDict()
    for number, rule in enumerate(rules):
        found[rule.check] = _finding(frame, declared, rule, counted[f"fault:{number}"], counted)
    for lookup in declared.lookups:
        found |= _tolerances(frame, declared, lookup, counted)
        answers = f"{lookup.name}__answers_in_range"
        if answers in found:
            found[answers] = _nulls_tolerated(found[answers], lookup, counted)
    if all(schema.status(lookup.name) in frame.columns for lookup in declared.lookups):
        outcomes = {
            lookup.name: {outcome: counted[f"{lookup.name}:{outcome}"] for outcome in OUTCOMES} for lookup in declared.lookups
        }
        found["counts"] = {"rows": counted["rows"], "outcomes": outcomes}
    return found


# -- the rules ---------------------------------------------------------------------------------------------------------
def _rules(frame: DataFrame, declared: DeclaredFacts) -> list[Rule]:
    rules = [_outcomes_add_up(declared)]
    for lookup in declared.lookups:
        if lookup.timeout is not None:
            rules.append(_time_limit_held(declared, lookup, lookup.timeout))
        rules += [_retries_held(lookup), _answers_in_range(frame, lookup)]
    return rules


def _outcomes_add_up(declared: DeclaredFacts) -> Rule:
    """One known outcome, which agrees with where the answer came from and with the attempts made."""
    from pyspark.sql import functions as F

    faults, names = [], []
    for lookup in declared.lookups:
        outcome, source = F.col(schema.status(lookup.name)), F.col(schema.source(lookup.name))
        calls = F.size(F.coalesce(F.col(schema.attempts(lookup.name)), F.array()))
        faults += [
            ~F.coalesce(outcome.isin(*OUTCOMES), F.lit(False)),
            F.col(schema.attempts(lookup.name)).isNull(),
            outcome.isin("ok", "miss") & ~F.coalesce(source.isin("call", "ledger", "shared"), F.lit(False)),
            outcome.isin("ok", "miss") & (source == "call") & (calls == 0),
            outcome.isin("skipped", "not_asked") & ((calls > 0) | source.isNotNull()),
        ]
        if lookup.timeout is None:
            faults.append(F.coalesce(outcome == "timeout", F.lit(False)))
        names += [schema.status(lookup.name), schema.source(lookup.name), schema.attempts(lookup.name)]
    return Rule("outcomes_add_up", _any(faults), tuple(names), tuple(names))


def _time_limit_held(declared: DeclaredFacts, lookup: LookupFacts, limit_s: float) -> Rule:
    """On the row's own clock, which stands still while its gate is closed, and again from the attempts."""
    from pyspark.sql import functions as F

    name = lookup.name
    slack_ms, limit_ms = declared.time_slack * 1000, limit_s * 1000
    outcome, calls = F.col(schema.status(name)), F.col(schema.attempts(name))
    latency, paused = F.col(schema.latency_ms(name)), F.coalesce(F.col(schema.paused_ms(name)), F.lit(0.0))
    calls_ms = _span_ms(calls)
    called = F.size(calls) > 0
    own_ms = latency - paused
    timed_out = outcome == "timeout"
    at_fault = _any(
        [
            ~timed_out & ((own_ms > limit_ms + slack_ms) | (calls_ms - paused > limit_ms + slack_ms)),
            ~timed_out & called & (latency.isNull() | (latency > calls_ms + slack_ms)),
            called & (latency < calls_ms - TICK_MS) & ~(timed_out & (calls_ms <= latency + slack_ms)),
            timed_out
            & ~F.col(schema.source(name)).eqNullSafe("shared")
            & ((own_ms < limit_ms - TICK_MS) | latency.isNull()),
            (paused < 0) | (paused > latency + TICK_MS),
        ]
    )
    shown = tuple(column(name) for column in (schema.status, schema.latency_ms, schema.paused_ms, schema.attempts))
    return Rule(f"{name}__time_limit_held", at_fault, shown, (*shown, schema.source(name)))


def _retries_held(lookup: LookupFacts) -> Rule:
    """Attempts that the service throttled use up no retry, and the service, not the strategy, sets the pause after them."""
    from pyspark.sql import functions as F

    calls = F.col(schema.attempts(lookup.name))

    def counted(some: Column) -> Column:
        return F.size(F.filter(some, lambda call: ~F.coalesce(call["throttled"], F.lit(False))))

    pauses_us = [_pause_us(lookup, attempts) for attempts in range(1, lookup.retries + 1)]
    declared_pauses = F.array(*(F.lit(pause) for pause in [*pauses_us, 0]))

    def too_soon(number: Column) -> Column:
        earlier, call = F.element_at(calls, number - 1), F.element_at(calls, number)
        used = F.least(F.greatest(counted(F.slice(calls, F.lit(1), number - 1)), F.lit(1)), F.lit(len(pauses_us) + 1))
        pause = F.when(earlier["throttled"], F.lit(0)).otherwise(F.element_at(declared_pauses, used))
        return call["start"] - earlier["end"] < pause - F.lit(int(TICK_MS * 1000))

    repeated = F.size(calls) > 1
    at_fault = _any(
        [
            repeated & (counted(calls) > 1 + lookup.retries),
            repeated & F.exists(F.sequence(F.lit(2), F.greatest(F.size(calls), F.lit(2))), too_soon),
            F.exists(calls, lambda call: call["end"] < call["start"]),
        ]
    )
    shown = (schema.status(lookup.name), schema.attempts(lookup.name))
    return Rule(f"{lookup.name}__retries_held", at_fault, shown, shown)


def _pause_us(lookup: LookupFacts, attempts: int) -> int:
    """The declared pause after so many attempts, in µs."""
    return int(min(lookup.max_delay, lookup.initial_delay * lookup.multiplier ** (attempts - 1)) * 1_000_000)


def _answers_in_range(frame: DataFrame, lookup: LookupFacts) -> Rule:
    from pyspark.sql import functions as F

    columns = tuple(column for column, _ in lookup.returns)
    outcome = F.col(schema.status(lookup.name))
    answered = F.coalesce(outcome.isin(*ANSWERED), F.lit(False))
    faults = [~answered & F.col(f"`{column}`").isNotNull() for column in columns]
    for column, lowest, highest in lookup.ranges:
        value = F.col(f"`{column}`")
        if column in frame.columns and frame.schema[column].dataType.typeName() in ("double", "float"):
            faults.append(F.isnan(value))
        faults += [value < lowest] if lowest is not None else []
        faults += [value > highest] if highest is not None else []
    shown = (schema.status(lookup.name), *columns)
    return Rule(f"{lookup.name}__answers_in_range", _any(faults), shown, shown)


def _any(faults: list[Column]) -> Column:
    """True where one of them is; null counts as no fault, so a rule that minds nulls asks for them."""
    from pyspark.sql import functions as F

    return reduce(or_, [F.coalesce(fault, F.lit(False)) for fault in faults], F.lit(False))


def _span_ms(calls: Column) -> Column:
    """First start to last end."""
    from pyspark.sql import functions as F

    return (F.try_element_at(calls, F.lit(-1))["end"] - F.try_element_at(calls, F.lit(1))["start"]) / 1000


# -- from counts to findings -------------------------------------------------------------------------------------------
def _measures(frame: DataFrame, lookup: LookupFacts) -> dict[str, Column]:
    from pyspark.sql import functions as F

    name = lookup.name
    if schema.status(name) not in frame.columns:
        return {}
    outcome = F.col(schema.status(name))
    measures = {f"{name}:{known}": F.count_if(outcome == known) for known in OUTCOMES}
    if schema.latency_ms(name) in frame.columns and schema.paused_ms(name) in frame.columns:
        own_ms = F.col(schema.latency_ms(name)) - F.coalesce(F.col(schema.paused_ms(name)), F.lit(0.0))
        measures[f"{name}:slowest"] = F.max(F.when(outcome != "timeout", own_ms))
        measures[f"{name}:earliest"] = F.min(F.when(outcome == "timeout", own_ms))
    if schema.attempts(name) in frame.columns:
        measures[f"{name}:attempts"] = F.max(F.size(F.col(schema.attempts(name))))
    for column, _ in lookup.null_share:
        if column in frame.columns:
            measures[f"{name}:null:{column}"] = F.count_if((outcome == "ok") & F.col(f"`{column}`").isNull())
    return measures


def _finding(frame: DataFrame, declared: DeclaredFacts, rule: Rule, faults: int, counted: dict[str, Any]) -> Finding:
    holds, wrong, expected = _sentences(declared, rule, faults, counted)
    if rule.check.endswith("__answers_in_range"):
        wrong_type = _wrong_types(frame, next(it for it in declared.lookups if rule.check == f"{it.name}__answers_in_range"))
        if wrong_type:
            return Finding(False, wrong_type, counted["rows"], counted["rows"], expected)  # noqa: FBT003
    finding = Finding.judged(holds, wrong, faults, counted["rows"], expected)
    if faults:
        columns = [*identity_columns(declared, frame), *(f"`{name}`" for name in rule.evidence)]
        finding = finding.with_evidence(rows_at_fault(frame, rule.at_fault, columns))
    return finding


def _sentences(declared: DeclaredFacts, rule: Rule, faults: int, counted: dict[str, Any]) -> tuple[str, str, str]:
    """For a rule: what to say when it holds, when it does not, and what is expected."""
    total, wrong = rows(counted["rows"]), rows(faults)
    if rule.check == "outcomes_add_up":
        parts = []
        for lookup in declared.lookups:
            outcomes = [(known, counted.get(f"{lookup.name}:{known}", 0)) for known in OUTCOMES]
            parts.append(f"{lookup.name}: " + " + ".join(f"{count:,} {known}" for known, count in outcomes if count))
        holds = f"{total} = " + "; ".join(parts) if counted["rows"] else "no rows, no outcomes"
        return holds, f"{wrong} of {total} without a known outcome that agrees with the calls made", "one outcome per lookup"
    lookup = next(it for it in declared.lookups if rule.check.startswith(f"{it.name}__"))
    name = lookup.name
    if rule.check.endswith("time_limit_held"):
        slowest, earliest = counted.get(f"{name}:slowest"), counted.get(f"{name}:earliest")
        limit = f"{lookup.timeout:g} s + {declared.time_slack:g} s"
        parts = [f"slowest row {slowest / 1000:.3f} s of {limit}" if slowest is not None else "no row was called for"]
        parts += [f"timeouts after {earliest / 1000:.3f} s or more"] if earliest is not None else []
        return ", ".join(parts), f"{wrong} over {limit}, or timed out before it", f"at most {limit}; timeouts not before"
    if rule.check.endswith("retries_held"):
        expected = f"at most {1 + lookup.retries} attempts, pauses of {lookup.initial_delay:g} s or more"
        return (
            f"at most {counted.get(f'{name}:attempts') or 0} attempts a row, all pauses kept",
            f"{wrong} with an attempt too many, or one too soon",
            expected,
        )
    ranges = [f"{column} {_bounds(low, high)}" for column, low, high in lookup.ranges]
    expected = "; ".join([", ".join(f"{column} {kind}" for column, kind in lookup.returns), *ranges])
    return f"all answers of {total} as declared", f"{wrong} with an answer out of range or out of place", expected


def _bounds(lowest: float | None, highest: float | None) -> str:
    if lowest is None:
        return f"<= {highest:g}"
    return f">= {lowest:g}" if highest is None else f"{lowest:g} .. {highest:g}"


def _wrong_types(frame: DataFrame, lookup: LookupFacts) -> str:
    from pyspark.sql.types import StructType

    declared = StructType.fromDDL(", ".join(f"`{column}` {kind}" for column, kind in lookup.returns))
    wrong = [
        f"{field.name} is {frame.schema[field.name].dataType.simpleString()}, declared {field.dataType.simpleString()}"
        for field in declared.fields
        if frame.schema[field.name].dataType.simpleString() != field.dataType.simpleString()
    ]
    return "; ".join(wrong)


def _nulls_tolerated(finding: Finding, lookup: LookupFacts, counted: dict[str, Any]) -> Finding:
    """The finding about the answers, red when more of them are null than declared."""
    for column, tolerated in lookup.null_share:
        nulls, answers = counted.get(f"{lookup.name}:null:{column}", 0), counted[f"{lookup.name}:ok"]
        if finding.success and share(nulls, answers) > tolerated:
            text = f"{column} is null in {share(nulls, answers):.2%} of {answers:,} answers, declared at most {tolerated:.2%}"
            return Finding(False, text, nulls, answers, finding.expected)  # noqa: FBT003
    return finding


def _tolerances(frame: DataFrame, declared: DeclaredFacts, lookup: LookupFacts, counted: dict[str, Any]) -> dict[str, Finding]:
    """Shares of timeouts and errors against what the declaration tolerates."""
    from pyspark.sql import functions as F

    found = {}
    name, total = lookup.name, counted["rows"]
    kinds = [("errors_tolerated", "error", declared.error_tolerance)]
    if lookup.timeout is not None:
        kinds.insert(0, ("timeouts_tolerated", "timeout", declared.timeout_tolerance))
    for rule, outcome, tolerated in kinds:
        check = f"{name}__{rule}"
        why_not = missing(frame, [schema.status(name), schema.error(name)])
        if why_not:
            found[check] = Finding.not_run(why_not)
            continue
        count = counted[f"{name}:{outcome}"]
        text = f"{outcome}: {rows(count)} of {total:,}, {share(count, total):.2%}; tolerated {tolerated:.2%}"
        finding = Finding(share(count, total) <= tolerated, text, count, total, f"at most {tolerated:.4%} of the rows")
        if not finding.success:
            columns = [*identity_columns(declared, frame), schema.error(name), schema.latency_ms(name)]
            at_fault = F.col(schema.status(name)) == outcome
            causes = _causes(frame.where(at_fault), schema.error(name)) if outcome == "error" else ""
            finding = Finding(False, text + causes, count, total, finding.expected)  # noqa: FBT003
            finding = finding.with_evidence(rows_at_fault(frame, at_fault, columns))
        found[check] = finding
    return found


def _causes(errors: DataFrame, column: str) -> str:
    """The commonest errors; numbers are taken out, so that 'HTTP 500 for key 17' and 'for key 18' are one cause."""
    from pyspark.sql import functions as F

    cause = F.regexp_replace(F.substring(F.col(column), 1, 200), r"(?<![A-Z] )\b\d[\d.:-]{3,}", "…")
    top = errors.groupBy(cause.alias("cause")).count().orderBy(F.desc("count"), "cause").limit(3).collect()
    return "".join(f"; {row['count']:,} times {plain(row['cause'])}" for row in top)
