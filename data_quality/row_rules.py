"""The rules about single rows: which rows break them, as conditions that Spark evaluates."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it

from jobs import schema
from jobs.schema import OUTCOMES, DayFacts, DeclaredFacts, LookupFacts

TICK_MS = 1.0  # two readings of one clock, rounded: a wait shorter than declared by less than this is none
ANSWERED = ("ok", "fallback")  # outcomes with which an answer may stand in the row
CLOCKS = dt.timedelta(minutes=5)  # by which the clocks of a cluster's hosts may differ


@dataclass(frozen=True)
class Rule:
    """A rule about single rows: the rows that break it, and what to show of them."""

    check: str
    at_fault: Column
    evidence: tuple[str, ...]
    needs: tuple[str, ...]
    called_again: Column | None = None  # beside at_fault, for rows with more than one attempt only


def rules_of(frame: DataFrame, facts: DayFacts) -> list[Rule]:
    declared = facts.declared
    rules = [_outcomes_add_up(declared)]
    for lookup in declared.lookups:
        if lookup.timeout is not None:
            rules.append(_time_limit_held(declared, lookup, lookup.timeout))
        rules += [_retries_held(lookup), _answers_in_range(frame, lookup)]
        rules += [_answers_match(facts, lookup)] if lookup.keys else []
    return rules


def _outcomes_add_up(declared: DeclaredFacts) -> Rule:
    """One known outcome, which agrees with where the answer came from and with the attempts made."""
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
            (outcome == "unknown") & source.isNotNull(),
            (source == "ledger") & (calls > 0),
        ]
        if lookup.timeout is None:
            faults.append(F.coalesce(outcome == "timeout", F.lit(False)))
        names += [schema.status(lookup.name), schema.source(lookup.name), schema.attempts(lookup.name)]
    return Rule("outcomes_add_up", any_of(faults), tuple(names), tuple(names))


def _time_limit_held(declared: DeclaredFacts, lookup: LookupFacts, limit_s: float) -> Rule:
    """On the row's own clock, which stands still while its gate is closed, and again from the attempts."""
    name = lookup.name
    slack_ms, limit_ms = declared.time_slack * 1000, limit_s * 1000
    outcome, calls = F.col(schema.status(name)), F.col(schema.attempts(name))
    latency, paused = F.col(schema.latency_ms(name)), F.coalesce(F.col(schema.paused_ms(name)), F.lit(0.0))
    calls_ms = _span_ms(calls)
    called = F.size(calls) > 0
    own_ms = latency - paused
    timed_out = outcome == "timeout"
    joined = F.col(schema.source(name)).eqNullSafe("shared")  # ended with another row's call, after its own attempts
    at_fault = any_of(
        [
            ~timed_out & ((own_ms > limit_ms + slack_ms) | (calls_ms - paused > limit_ms + slack_ms)),
            ~timed_out & called & (latency.isNull() | (~joined & (latency > calls_ms + slack_ms))),
            called & (latency < calls_ms - TICK_MS) & ~(timed_out & (calls_ms <= latency + slack_ms)),
            timed_out & ~joined & ((own_ms < limit_ms - TICK_MS) | latency.isNull()),
            (paused < 0) | (paused > latency + TICK_MS),
        ]
    )
    shown = tuple(column(name) for column in (schema.status, schema.latency_ms, schema.paused_ms, schema.attempts))
    return Rule(f"{name}__time_limit_held", at_fault, shown, (*shown, schema.source(name)))


def _retries_held(lookup: LookupFacts) -> Rule:
    """Attempts that the service throttled use up no retry; the service, not the strategy, sets the pause after them."""
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
    backwards = F.try_element_at(calls, F.lit(1))["end"] < F.try_element_at(calls, F.lit(1))["start"]
    again = any_of(
        [
            counted(calls) > 1 + lookup.retries,
            F.exists(F.sequence(F.lit(2), F.greatest(F.size(calls), F.lit(2))), too_soon),
            F.exists(calls, lambda call: call["end"] < call["start"]),
        ]
    )
    shown = (schema.status(lookup.name), schema.attempts(lookup.name))
    check = f"{lookup.name}__retries_held"
    return Rule(check, any_of([~repeated & backwards]), shown, shown, F.when(repeated, again).otherwise(F.lit(False)))


def _pause_us(lookup: LookupFacts, attempts: int) -> int:
    """The declared pause after so many attempts, in µs."""
    return int(min(lookup.max_delay, lookup.initial_delay * lookup.multiplier ** (attempts - 1)) * 1_000_000)


def _answers_in_range(frame: DataFrame, lookup: LookupFacts) -> Rule:
    columns = tuple(column for column, _ in lookup.returns)
    outcome = F.col(schema.status(lookup.name))
    # A row without a known outcome is the business of outcomes_add_up.
    unanswered = outcome.isin(*(known for known in OUTCOMES if known not in ANSWERED))
    faults = [unanswered & F.col(f"`{column}`").isNotNull() for column in columns]
    for column, lowest, highest in lookup.ranges:
        value = F.col(f"`{column}`")
        if column in frame.columns and frame.schema[column].dataType.typeName() in ("double", "float"):
            faults.append(F.isnan(value))
        faults += [value < lowest] if lowest is not None else []
        faults += [value > highest] if highest is not None else []
    bounded = dict.fromkeys(column for column, _, _ in lookup.ranges)  # first: a sentence names the first few columns
    shown = (*bounded, schema.status(lookup.name), *(column for column in columns if column not in bounded))
    return Rule(f"{lookup.name}__answers_in_range", any_of(faults), shown, shown)


def _answers_match(facts: DayFacts, lookup: LookupFacts) -> Rule:
    """What the row itself says of its answer: published as audited, asked where there is a key, come when it says."""
    name = lookup.name
    outcome, source = F.col(schema.status(name)), F.col(schema.source(name))
    published, answered_at = F.col(schema.published_status(name)), F.col(schema.published_answered_at(name))
    key, calls = F.col(schema.key(name)), F.col(schema.attempts(name))
    hit, asked_now = outcome.isin("ok", "miss"), source.isin("call", "shared")
    absent = any_of([key.isNull(), *(key.getField(part).isNull() for part, _ in lookup.keys)])
    begun, ended = (F.lit(moment).cast("timestamp") for moment in _within(facts))  # null where the run is not known
    came_at = F.try_element_at(calls, F.lit(-1))["end"]
    faults = [
        ~published.eqNullSafe(outcome),
        outcome.isin(*OUTCOMES) & (absent != (outcome == "skipped")),
        hit & answered_at.isNull(),
        ~outcome.isin(*ANSWERED, "miss") & answered_at.isNotNull(),
        hit & (source == "call") & (F.unix_micros(answered_at) != came_at),
        asked_now & ((answered_at < begun) | (answered_at > ended)),
    ]
    shown = tuple(
        column(name) for column in (schema.status, schema.published_status, schema.source, schema.published_answered_at)
    )
    return Rule(f"{name}__answers_match", any_of(faults), shown, (*shown, schema.key(name), schema.attempts(name)))


def _within(facts: DayFacts) -> tuple[str | None, str | None]:
    """The run, and as much around it as clocks may differ."""
    if not facts.started_at or not facts.finished_at:
        return None, None
    begun, ended = (dt.datetime.fromisoformat(moment) for moment in (facts.started_at, facts.finished_at))
    return (begun - CLOCKS).isoformat(), (ended + CLOCKS).isoformat()


def any_of(faults: list[Column]) -> Column:
    """True where one of them is; null counts as no fault, so a rule that minds nulls asks for them."""
    return reduce(or_, [F.coalesce(fault, F.lit(False)) for fault in faults], F.lit(False))


def _span_ms(calls: Column) -> Column:
    """First start to last end."""
    return (F.try_element_at(calls, F.lit(-1))["end"] - F.try_element_at(calls, F.lit(1))["start"]) / 1000
