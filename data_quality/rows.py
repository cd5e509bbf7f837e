"""What can be judged row by row: outcomes, time limits, retries, answers. One aggregation over the files for all of it.

A second one, over the rows that were called more than once, judges what only they can break: it needs functions on
arrays, which Spark does not compile.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it

from data_quality.findings import Finding, identity_columns, missing, plain, rows, rows_at_fault, share
from data_quality.row_rules import Rule, any_of, rules_of
from data_quality.run_output import structure
from jobs import schema
from jobs.schema import OUTCOMES, DayFacts, DeclaredFacts, LookupFacts


def judge(frame: DataFrame, facts: DayFacts) -> dict[str, Any]:
    """Findings by check name; beside them `counts`: rows, and the rows of each outcome for each lookup."""
    declared = facts.declared
    found: dict[str, Any] = {}
    rules = []
    for rule in rules_of(frame, facts):
        why_not = missing(frame, rule.needs)
        if why_not:
            found[rule.check] = Finding.not_run(why_not)
        else:
            rules.append(rule)
    counted = _count(frame, declared, rules)
    for number, rule in enumerate(rules):
        found[rule.check] = _finding(frame, declared, rule, counted[f"fault:{number}"], counted)
    for lookup in declared.lookups:
        found |= _tolerances(frame, declared, lookup, counted)
        answers = f"{lookup.name}__answers_in_range"
        if answers in found:
            found[answers] = _nulls_tolerated(frame, declared, found[answers], lookup, counted)
    if all(schema.status(lookup.name) in frame.columns for lookup in declared.lookups):
        outcomes = {
            lookup.name: {outcome: counted[f"{lookup.name}:{outcome}"] for outcome in OUTCOMES}
            for lookup in declared.lookups
        }
        answered = {lookup.name: counted.get(f"{lookup.name}:answered") for lookup in declared.lookups}
        found["counts"] = {"rows": counted["rows"], "outcomes": outcomes, "answered": answered}
    return found


def _count(frame: DataFrame, declared: DeclaredFacts, rules: list[Rule]) -> dict[str, Any]:
    """`rows`, `fault:<number of the rule>`, `<lookup>:<outcome>` and the lookups' extremes.

    Rows are grouped by their outcomes and the rules that they break, as bits: few groups, each rule evaluated once.
    """
    outcomes: dict[str, Column] = {}
    extremes: dict[str, Column] = {}
    for lookup in declared.lookups:
        if schema.status(lookup.name) in frame.columns:
            outcome = F.col(schema.status(lookup.name))
            outcomes[lookup.name] = F.when(outcome.isin(*OUTCOMES), outcome).alias(f"outcome:{lookup.name}")
            extremes |= _extremes(frame, lookup)
    broken = [
        _bits([rule.at_fault for rule in rules[first : first + 60]]).alias(f"bits:{first}")
        for first in range(0, len(rules), 60)
    ]
    groups = frame.groupBy(*outcomes.values(), *broken).agg(
        F.count("*").alias("rows"), *(column.alias(name) for name, column in extremes.items())
    )
    counted: dict[str, Any] = {"rows": 0} | {f"{name}:{known}": 0 for name in outcomes for known in OUTCOMES}
    counted |= {f"fault:{number}": 0 for number in range(len(rules))} | dict.fromkeys(extremes)
    for group in groups.collect():
        counted["rows"] += group["rows"]
        for name in outcomes:
            if group[f"outcome:{name}"] is not None:
                counted[f"{name}:{group[f'outcome:{name}']}"] += group["rows"]
        for number in range(len(rules)):
            first = number - number % 60
            counted[f"fault:{number}"] += group["rows"] if group[f"bits:{first}"] >> (number - first) & 1 else 0
        for name in extremes:
            counted[name] = _further(name, counted[name], group[name])
    again = {f"fault:{number}": rule.called_again for number, rule in enumerate(rules) if rule.called_again is not None}
    if again:
        counts = frame.where(_called_again(frame, declared)).agg(
            *(F.count_if(fault).alias(name) for name, fault in again.items())
        )
        for name, count in counts.collect()[0].asDict().items():
            counted[name] += count
    return counted


def _bits(faults: list[Column]) -> Column:
    ones = [F.when(fault, F.lit(1 << number)).otherwise(F.lit(0)) for number, fault in enumerate(faults)]
    return reduce(lambda one, other: one.bitwiseOR(other), ones, F.lit(0).cast("long"))


def _further(name: str, one: Any, other: Any) -> Any:
    """The extreme of two groups; counts add up."""
    if one is None or other is None:
        return other if one is None else one
    if ":null:" in name or name.endswith(":answered"):
        return one + other
    return min(one, other) if name.endswith(":earliest") else max(one, other)


def _called_again(frame: DataFrame, declared: DeclaredFacts) -> Column:
    calls = [
        schema.attempts(lookup.name) for lookup in declared.lookups if schema.attempts(lookup.name) in frame.columns
    ]
    return any_of([F.size(call) > 1 for call in calls])


# -- from counts to findings -------------------------------------------------------------------------------------------
def _extremes(frame: DataFrame, lookup: LookupFacts) -> dict[str, Column]:
    """Slowest row, earliest timeout, most attempts; answers by call and nulls in answers, which add up."""
    name, outcome = lookup.name, F.col(schema.status(lookup.name))
    measures = {}
    if schema.latency_ms(name) in frame.columns and schema.paused_ms(name) in frame.columns:
        own_ms = F.col(schema.latency_ms(name)) - F.coalesce(F.col(schema.paused_ms(name)), F.lit(0.0))
        measures[f"{name}:slowest"] = F.max(F.when(outcome != "timeout", own_ms))
        measures[f"{name}:slowest_whole"] = F.max(F.when(outcome != "timeout", F.col(schema.latency_ms(name))))
        measures[f"{name}:earliest"] = F.min(F.when(outcome == "timeout", own_ms))
    if schema.attempts(name) in frame.columns:
        measures[f"{name}:attempts"] = F.max(F.size(F.col(schema.attempts(name))))
    if schema.source(name) in frame.columns:
        measures[f"{name}:answered"] = F.count_if(outcome.isin("ok", "miss") & (F.col(schema.source(name)) == "call"))
    for column, _ in lookup.null_share:
        if column in frame.columns:
            measures[f"{name}:null:{column}"] = F.count_if((outcome == "ok") & F.col(f"`{column}`").isNull())
    return measures


def _finding(frame: DataFrame, declared: DeclaredFacts, rule: Rule, faults: int, counted: dict[str, Any]) -> Finding:
    holds, wrong, expected = _sentences(declared, rule, faults, counted)
    if rule.check.endswith("__answers_in_range"):
        wrong_type = _wrong_types(
            frame, next(it for it in declared.lookups if rule.check == f"{it.name}__answers_in_range")
        )
        if wrong_type:
            return Finding(False, wrong_type, counted["rows"], counted["rows"], expected)
    finding = Finding.judged(holds, wrong, faults, counted["rows"], expected)
    if faults:
        columns = [*identity_columns(declared, frame), *(f"`{name}`" for name in rule.evidence)]
        at_fault = rule.at_fault if rule.called_again is None else rule.at_fault | rule.called_again
        finding = finding.with_evidence(rows_at_fault(frame, at_fault, columns))
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
        return (
            holds,
            f"{wrong} of {total} without a known outcome that agrees with the calls made",
            "one outcome per lookup",
        )
    lookup = next(it for it in declared.lookups if rule.check.startswith(f"{it.name}__"))
    name = lookup.name
    if rule.check.endswith("time_limit_held"):
        slowest, earliest = counted.get(f"{name}:slowest"), counted.get(f"{name}:earliest")
        limit = f"{lookup.timeout:g} s + {declared.time_slack:g} s"
        parts = [f"slowest row {slowest / 1000:.3f} s of {limit}" if slowest is not None else "no row was called for"]
        whole = counted.get(f"{name}:slowest_whole")
        if slowest is not None and whole is not None and whole - slowest >= 1:  # else the chart shows the same
            parts += [f"with the time in which the gate was closed, as the charts count it, {whole / 1000:.3f} s"]
        parts += [f"timeouts after {earliest / 1000:.3f} s or more"] if earliest is not None else []
        return (
            ", ".join(parts),
            f"{wrong} over {limit}, timed out before it, or with another latency than their attempts",
            f"at most {limit}; timeouts not before",
        )
    if rule.check.endswith("retries_held"):
        expected = f"at most {1 + lookup.retries}, throttled ones aside; pauses of {lookup.initial_delay:g} s or more"
        return (
            f"at most {counted.get(f'{name}:attempts') or 0} attempts a row, throttled ones included; all pauses kept",
            f"{wrong} with an attempt too many, or one too soon",
            expected,
        )
    if rule.check.endswith("answers_match"):
        return (
            f"{total} published as audited",
            f"{wrong} of {counted['rows']:,} whose status, key, or time of the answer is not that of the call",
            "published as audited; asked where there is a key; an answer that came by call came at its end",
        )
    ranges = [f"{column} {_bounds(low, high)}" for column, low, high in lookup.ranges]
    expected = "; ".join([", ".join(f"{column} {kind}" for column, kind in lookup.returns), *ranges])
    bounds = f" ({', '.join(ranges)})" if ranges else ""
    return (
        f"all answers of {total} as declared",
        f"{wrong} with an answer out of range{bounds} or out of place",
        expected,
    )


def _bounds(lowest: float | None, highest: float | None) -> str:
    if lowest is None:
        return f"<= {highest:g}"
    return f">= {lowest:g}" if highest is None else f"{lowest:g} .. {highest:g}"


def _wrong_types(frame: DataFrame, lookup: LookupFacts) -> str:
    declared = structure(", ".join(f"`{column}` {kind}" for column, kind in lookup.returns))
    wrong = [
        f"{field.name} is {frame.schema[field.name].dataType.simpleString()}, declared {field.dataType.simpleString()}"
        for field in declared.fields
        if frame.schema[field.name].dataType.simpleString() != field.dataType.simpleString()
    ]
    return "; ".join(wrong)


def _nulls_tolerated(
    frame: DataFrame, declared: DeclaredFacts, finding: Finding, lookup: LookupFacts, counted: dict[str, Any]
) -> Finding:
    """The finding about the answers, red when more of them are null than declared."""
    for column, tolerated in lookup.null_share:
        nulls, answers = counted.get(f"{lookup.name}:null:{column}") or 0, counted[f"{lookup.name}:ok"]
        if finding.success and share(nulls, answers) > tolerated:
            text = f"{column} is null in {share(nulls, answers):.2%} of {answers:,} answers; tolerated {tolerated:.2%}"
            at_fault = (F.col(schema.status(lookup.name)) == "ok") & F.col(f"`{column}`").isNull()
            columns = [*identity_columns(declared, frame), schema.status(lookup.name), f"`{column}`"]
            finding = Finding(False, text, nulls, answers, finding.expected)
            return finding.with_evidence(rows_at_fault(frame, at_fault, columns))
    return finding


def _tolerances(
    frame: DataFrame, declared: DeclaredFacts, lookup: LookupFacts, counted: dict[str, Any]
) -> dict[str, Finding]:
    """Shares of timeouts and errors against what the declaration tolerates."""
    found = {}
    name, total = lookup.name, counted["rows"]
    kinds: list[tuple[str, tuple[str, ...], float]] = [
        ("errors_tolerated", ("error", "unknown"), declared.error_tolerance)
    ]
    if lookup.timeout is not None:
        kinds.insert(0, ("timeouts_tolerated", ("timeout",), declared.timeout_tolerance))
    for rule, outcomes, tolerated in kinds:
        check = f"{name}__{rule}"
        why_not = missing(frame, [schema.status(name), schema.error(name)])
        if why_not:
            found[check] = Finding.not_run(why_not)
            continue
        counts = {outcome: counted[f"{name}:{outcome}"] for outcome in outcomes}
        count = sum(counts.values())
        message = " or ".join(outcome for outcome in outcomes if counts[outcome]) or outcomes[0]
        text = f"{message}: {rows(count)} of {total:,}, {share(count, total):.2%}; tolerated {tolerated:.2%}"
        finding = Finding(
            share(count, total) <= tolerated, text, count, total, f"at most {100 * tolerated:.4g} % of the rows"
        )
        if not finding.success:
            columns = [*identity_columns(declared, frame), schema.error(name), schema.latency_ms(name)]
            at_fault = F.col(schema.status(name)).isin(*outcomes)
            causes = _causes(frame.where(at_fault), schema.error(name)) if "error" in outcomes else ""
            finding = Finding(False, text + causes, count, total, finding.expected)
            finding = finding.with_evidence(rows_at_fault(frame, at_fault, columns))
        found[check] = finding
    return found


def _causes(errors: DataFrame, column: str) -> str:
    """The commonest errors; numbers and ids are taken out, so that '500 for key 1717' and 'for key 1818' are one."""
    varying = r"(?<![A-Z] )\b\d[\d.:-]{3,}|\b(?=[\w-]*\d)[\w-]{16,}\b"
    cause = F.regexp_replace(F.substring(F.col(column), 1, 200), varying, "…")
    top = errors.groupBy(cause.alias("cause")).count().orderBy(F.desc("count"), "cause").limit(3).collect()
    return "".join(f"; {row['count']:,} times {plain(row['cause'])}" for row in top)
