"""The checks of an enrichment: their names, severities and what each one defends.

Loads without Great Expectations, Spark or pandas, so that Dagster's definitions can be made from it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from jobs.schema import DeclaredFacts, ExpectationFacts, LookupFacts, Severity

DAYS_OF_HISTORY = 28  # a miss share is usual or not against these days
OVER_HTTP = ("http", "coroutine")  # lookups whose answers are matched to requests by their order alone
WEEKS_OF_HISTORY = 4  # an input day is complete or not against the same weekday of these weeks


@dataclass(frozen=True)
class CheckSpec:
    """One check, before it ran. `lookup` is None for a check of the whole row."""

    name: str
    severity: Severity
    description: str
    lookup: str | None = None


def checks(declared: DeclaredFacts) -> tuple[CheckSpec, ...]:
    """Every check that a day of this enrichment gets, in the order in which people read them.

    A rule that the declaration does not ask for is absent, so that no check passes without having judged anything.

    Raises:
        ValueError: `severities` names a check that there is not.
    """
    specs = [*_of_the_row(declared)]
    for lookup in declared.lookups:
        specs += _of_a_lookup(declared, lookup)
    specs += [
        CheckSpec(name, expectation.severity, f"{expectation.type} {_in_words(expectation)}")
        for name, expectation in further(declared)
    ]
    unknown = sorted(set(declared.severities) - {spec.name for spec in specs})
    if unknown:
        names = ", ".join(spec.name for spec in specs)
        raise ValueError(f"{declared.enrichment}: severities: no check {unknown[0]!r}. The checks are: {names}.")
    return tuple(replace(spec, severity=declared.severities.get(spec.name, spec.severity)) for spec in specs)


def further(declared: DeclaredFacts) -> list[tuple[str, ExpectationFacts]]:
    """The user's own expectations with their check names: `<type>__<column>`, numbered where two would be the same."""
    seen: Counter[str] = Counter()
    named = []
    for expectation in declared.expectations:
        columns = [str(expectation.arguments[key]) for key in ("column", "column_A", "column_B", "column_list")
                   if key in expectation.arguments]  # fmt: skip
        name = "__".join(
            [expectation.type, *("".join(c if c.isalnum() else "_" for c in column) for column in columns)]
        )
        seen[name] += 1
        named.append((name if seen[name] == 1 else f"{name}_{seen[name]}", expectation))
    return named


def _in_words(expectation: ExpectationFacts) -> str:
    return "with " + ", ".join(f"{name} {value!r}" for name, value in expectation.arguments.items())


def _of_the_row(declared: DeclaredFacts) -> list[CheckSpec]:
    specs = [
        CheckSpec(
            "every_row_once", "error", "Every row of the input is in the files exactly once: none lost, none doubled."
        ),
        CheckSpec(
            "input_unchanged", "error", "Every carried column of every row has the value that it has in the input."
        ),
        CheckSpec(
            "outcomes_add_up",
            "error",
            "Every row has one known outcome for each lookup, in agreement with its calls; they sum to the rows.",
        ),
    ]
    if declared.mode == "ordered":
        specs.append(
            CheckSpec("order_held", "error", "Within a task, the rows stand in the files in the order of the input.")
        )
    if declared.mode == "key_ordered":
        key = ", ".join(declared.order_key)
        specs.append(
            CheckSpec(
                "order_held",
                "error",
                f"Within a task and a segment, rows of the same {key} stand in the files in the order of the input.",
            )
        )
    if declared.event_time is not None:
        specs += [
            CheckSpec(
                "watermarks_not_crossed",
                "error",
                "No row crosses a watermark, and the watermarks are where the event times put them.",
            ),
            CheckSpec(
                "late_rows_marked", "error", "The rows marked late are exactly those that the event times make late."
            ),
        ]
    specs.append(
        CheckSpec(
            "input_day_complete",
            "warn",
            f"The day has about as many rows as the same weekday of the {WEEKS_OF_HISTORY} weeks before.",
        )
    )
    return specs


def _of_a_lookup(declared: DeclaredFacts, lookup: LookupFacts) -> list[CheckSpec]:
    name, slack = lookup.name, f"{declared.time_slack:g} s"
    attempts = "1 attempt" if lookup.retries == 0 else f"{1 + lookup.retries} attempts"
    limit = "no limit" if lookup.timeout is None else f"{lookup.timeout:g} s"
    texts: list[tuple[str, Severity, str]] = []
    if lookup.timeout is not None:
        texts += [
            (
                "time_limit_held",
                "error",
                f"No row took longer than {limit} (+ {slack}); every row that timed out waited {limit}.",
            ),
            ("timeouts_tolerated", "error", f"At most {100 * declared.timeout_tolerance:.4g} % of the rows timed out."),
        ]
    texts += [
        (
            "errors_tolerated",
            "error",
            f"At most {100 * declared.error_tolerance:.4g} % of the rows ended in an error, or unknown.",
        ),
        (
            "retries_held",
            "error",
            f"No row made more than {attempts}, and each pause between them was as long as declared.",
        ),
        (
            "concurrency_held",
            "error",
            f"No task had more calls in flight than its share of {lookup.max_concurrency}, by their starts and ends.",
        ),
        (
            "answers_in_range",
            "error",
            "The answers have the declared columns and types, lie in range, and stand only in rows with an answer.",
        ),
    ]
    if lookup.keys:
        text = "The key asked is what the declaration makes of the row, and the answer is that of the key"
        stored = ", as it is kept in the ledger." if declared.ledger is not None else "."
        texts.append(("answers_match", "error", text + stored))
    if lookup.kind in OVER_HTTP:
        text = f"Each connection to {lookup.service} brought one answer per request, so that none is another key's."
        texts.append(("one_answer_per_request", "error", text))
    if declared.miss_change is not None:
        texts.append(
            (
                "miss_share_usual",
                "warn",
                f"The share of misses is within {declared.miss_change:g} of that of the last {DAYS_OF_HISTORY} days.",
            )
        )
    if declared.ledger is not None:
        text = "Each distinct key is called for once, and every answer is kept, so that no run asks for it again."
        texts.append(("calls_reconciled", "warn", text))
    return [CheckSpec(f"{name}__{rule}", severity, f"{name}: {text}", name) for rule, severity, text in texts]
