"""One day judged: every check of the catalogue on exactly the run's files, in one Great Expectations validation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pyspark.errors import PySparkException

from data_quality import answers, history, pictures, run_output
from data_quality.catalogue import CheckSpec, checks, further
from data_quality.findings import Finding, plain
from data_quality.slow_imports import OF_GREAT_EXPECTATIONS, import_when_used
from jobs.schema import DayFacts, DayMetrics, ExpectationFacts, RequestMetrics, Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SEVERITY = {"error": "critical", "warn": "warning"}


@dataclass(frozen=True)
class QualityResult:
    """What the checks say of a day, and what was counted for its report."""

    verdicts: tuple[Verdict, ...]
    pictures: dict[str, Any] = field(default_factory=dict)


def check(
    spark: SparkSession, facts: DayFacts, figures: DayMetrics, stored: answers.Stored | None = None
) -> QualityResult:
    """Judge a day on the files of its run, before it is published: one verdict per check of the catalogue.

    stored: gives what the ledger holds of a lookup's answers. A check that could not run is `not_run`, with the reason,
    and stops no other. Nothing is written.
    """
    frame = run_output.read(spark, facts)
    found = verdicts(frame, facts, figures, stored)
    try:
        drawn = pictures.count(frame, facts)
    except PySparkException:  # audit columns of a wrong type: the verdicts say so, and must not be lost for a picture
        drawn = {}
    return QualityResult(found, drawn)


def verdicts(
    frame: DataFrame, facts: DayFacts, figures: DayMetrics | None = None, stored: answers.Stored | None = None
) -> tuple[Verdict, ...]:
    """The verdicts on any Spark table with the audit columns; `figures` are the run's own counts, to be checked too.

    stored: by lookup, what is kept of its answers; without it they are judged by themselves.
    """
    specs = checks(facts.declared)
    by_answer = answers.judge(frame, facts, stored)
    expectations, unknown = [], {}
    import_when_used(*OF_GREAT_EXPECTATIONS)
    with _quiet():
        for spec, expectation in _expectations_of(specs, facts, figures, by_answer):
            if isinstance(expectation, str):
                unknown[spec.name] = expectation
            else:
                expectations.append(expectation)
        results = _validate(frame, facts, expectations)
    if not facts.files and facts.input_files and not results["every_row_once"].success:
        why = "not run: no files to check"
        return tuple(
            _verdict(spec, results[spec.name])
            if spec.name == "every_row_once"
            else Verdict(spec.name, "not_run", spec.severity, why)
            for spec in specs
        )
    return tuple(
        Verdict(spec.name, "not_run", spec.severity, f"not run: {unknown[spec.name]}")
        if spec.name in unknown
        else _verdict(spec, results[spec.name])
        for spec in specs
    )


def _expectations_of(
    specs: tuple[CheckSpec, ...], facts: DayFacts, figures: DayMetrics | None, by_answer: dict[str, Finding]
) -> Iterator[tuple[CheckSpec, Any]]:
    """The expectation of each check, or the reason why there is none. by_answer: of `answers.judge`."""
    from data_quality.expectations import BY_RULE

    users = dict(further(facts.declared))
    earlier = history.earlier_days(facts.declared.enrichment, facts.day)
    for spec in specs:
        common = {"severity": _SEVERITY[spec.severity], "description": spec.description, "meta": {"check": spec.name}}
        if spec.name in users:
            yield spec, _of_the_user(users[spec.name], common)
            continue
        rule = spec.name.removeprefix(f"{spec.lookup}__") if spec.lookup else spec.name
        arguments: dict[str, Any] = {"facts": facts.to_json(), "lookup": spec.lookup}
        arguments |= _counted(rule, facts, figures, spec.lookup)
        if rule == "answers_match":
            arguments["answers"] = by_answer[spec.lookup or ""].plain()
        if rule == "miss_share_usual" and spec.lookup:
            arguments["shares"] = history.miss_shares(earlier, spec.lookup)
        if rule == "input_day_complete":
            arguments["row_counts"] = history.same_weekday(earlier, facts.day)
        yield spec, BY_RULE[rule](**arguments, **common)


def _of_the_user(wanted: ExpectationFacts, common: dict[str, Any]) -> Any:
    """An expectation of the user's own, or the reason why there is none."""
    import great_expectations.expectations as gxe

    kind = getattr(gxe, "".join(part.capitalize() for part in wanted.type.split("_")), None)
    if kind is None:
        return f"Great Expectations has no {wanted.type}"
    try:
        return kind(**wanted.arguments, **common)
    except (TypeError, ValueError) as wrong:
        return f"{wanted.type}: {_one_line(wrong)}"


def _counted(rule: str, facts: DayFacts, figures: DayMetrics | None, lookup: str | None) -> dict[str, Any]:
    """What the run itself counted, for the checks that compare it with the files or have nothing else to judge by."""
    match rule:
        case "outcomes_add_up" if figures is not None:
            return {"counted": {one.name: dict(one.outcomes) for one in figures.lookups}}
        case "concurrency_held":
            return {"most_at_once": _most_at_once(facts, figures, lookup)}
        case "calls_reconciled":
            stored = {one.name: one.stored for one in figures.lookups} if figures else {}
            sent = _sent(facts, figures, lookup)
            return {"stored": stored.get(lookup or ""), "sent": sent, "called": _called(figures, lookup)}
        case "one_answer_per_request":
            return {"answers": _answers(figures, lookup)}
    return {}


def _most_at_once(facts: DayFacts, figures: DayMetrics | None, lookup: str | None) -> list[int] | None:
    """Requests in flight by task, where one asks for many keys; None where none does, or nobody counted."""
    batched = any(one.name == lookup and one.batch_size > 1 for one in facts.declared.lookups)
    requests = _requests(figures, lookup)
    return list(requests.most_at_once) if batched and requests is not None else None


def _sent(facts: DayFacts, figures: DayMetrics | None, lookup: str | None) -> list[int] | None:
    """Requests, and the keys that they asked for; None where nobody counted, or an answer may need no request."""
    own_way = any(one.name == lookup and one.kind == "coroutine" for one in facts.declared.lookups)
    requests = _requests(figures, lookup)
    return None if own_way or requests is None else [requests.sent, requests.items]


def _answers(figures: DayMetrics | None, lookup: str | None) -> list[int] | None:
    """Answers that came by request, and those in doubt; None where nobody counted what was sent."""
    requests = _requests(figures, lookup)
    if requests is not None:
        return [requests.answered, requests.in_doubt]
    calls = [one.calls for one in figures.lookups if one.name == lookup] if figures else []
    return [0, 0] if calls == [0] else None


def _called(figures: DayMetrics | None, lookup: str | None) -> list[int] | None:
    """Rows that were called for, and their distinct keys; None where nobody counted them."""
    one = next((one for one in figures.lookups if one.name == lookup), None) if figures else None
    return None if one is None or one.keys_called is None else [one.rows_called, one.keys_called]


def _requests(figures: DayMetrics | None, lookup: str | None) -> RequestMetrics | None:
    return next((one.requests for one in figures.lookups if one.name == lookup), None) if figures else None


def _validate(frame: DataFrame, facts: DayFacts, expectations: list[Any]) -> dict[str, Any]:
    """One validation run in a context of its own; results by check name."""
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False, "metric_calculations": False}
    source = context.data_sources.add_spark("spark", persist=False)
    batch = source.add_dataframe_asset(facts.declared.enrichment).add_batch_definition_whole_dataframe("day")
    suite = context.suites.add(gx.ExpectationSuite(name=facts.declared.enrichment, expectations=expectations))
    validation = context.validation_definitions.add(gx.ValidationDefinition(name="day", data=batch, suite=suite))
    outcome = validation.run(
        batch_parameters={"dataframe": frame},
        result_format={"result_format": "SUMMARY", "partial_unexpected_count": 10},
    )
    return {result.expectation_config.meta["check"]: result for result in outcome.results}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Great Expectations logs and warns about its own ways, which tell nobody anything about the day."""
    import logging
    import warnings

    logger = logging.getLogger("great_expectations")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _verdict(spec: CheckSpec, result: Any) -> Verdict:
    broken = _exception(result.exception_info)
    if broken:
        return Verdict(spec.name, "not_run", spec.severity, f"not run: {broken}")
    found = result.result
    if "sentence" not in found:
        return _verdict_of_a_stock_expectation(spec, result)
    if found["success"] is None:
        return Verdict(spec.name, "not_run", spec.severity, found["sentence"])
    return Verdict(
        check=spec.name,
        status="passed" if result.success else "failed",
        severity=spec.severity,
        sentence=found["sentence"],
        unexpected_count=found["unexpected_count"],
        element_count=found["element_count"],
        expected=found["expected"],
        evidence=tuple(found["evidence"]),
    )


def _verdict_of_a_stock_expectation(spec: CheckSpec, result: Any) -> Verdict:
    found = result.result
    unexpected, elements = found.get("unexpected_count") or 0, found.get("element_count") or 0
    if "unexpected_count" in found:
        values = [plain(value) for value in found.get("partial_unexpected_list") or []]
        sentence = f"{unexpected:,} of {elements:,} unexpected" + (f"; first: {values[0]}" if values else "")
        evidence: tuple[dict[str, Any], ...] = tuple({"value": value} for value in values)
    else:
        sentence, evidence = f"observed {plain(found.get('observed_value'))}", ()
    status: Literal["passed", "failed"] = "passed" if result.success else "failed"
    return Verdict(spec.name, status, spec.severity, sentence, unexpected, elements, spec.description, evidence)


def _exception(info: dict[str, Any]) -> str | None:
    """The message of the exception that kept a check from running; Great Expectations nests it by metric."""
    if "raised_exception" in info:
        return _one_line(info["exception_message"]) if info["raised_exception"] else None
    messages = [_exception(inner) for inner in info.values() if isinstance(inner, dict)]
    return next((message for message in messages if message), None)


def _one_line(problem: object) -> str:
    return " ".join(str(problem).split())[:300]
