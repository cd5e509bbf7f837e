"""The checks of a day as one Great Expectations validation.

Tidegate's checks share one metric, which judges the day in one pass. Great Expectations judges the
user's expectations itself, in Spark.
"""

import re
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import great_expectations as gx
import great_expectations.expectations as gxe
import pyarrow as pa
from great_expectations.execution_engine import PandasExecutionEngine, SparkDFExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render import LegacyRendererType, RenderedStringTemplateContent
from great_expectations.render.renderer.renderer import renderer
from pyspark.sql import DataFrame

from data_quality.catalogue import CheckSpec
from data_quality.findings import ROWS_OF_EVIDENCE, Finding, share
from data_quality.rows.written_day import LONGEST
from data_quality.users_expectations import OF_EACH_ROW, make_expectation
from jobs.wording import one_line

Judge = Callable[[], Mapping[str, Finding]]

# in Spark's errors: of Python, which a traceback ends with, or of a task in Java
CAUSE = re.compile(r"(?:^Traceback .*\n(?:[ \t].*\n)*|executor \w+\): )(\S.*)", re.MULTILINE)
SUMMARY = {"result_format": "SUMMARY", "partial_unexpected_count": ROWS_OF_EVIDENCE}
COMPLETE = {"result_format": "COMPLETE"}  # with the rows that a query finds, at most 200
_SEVERITY = {"error": "critical", "warn": "warning"}
# by running validation, because a metric's arguments can only be plain data
_JUDGES: dict[str, Judge] = {}


class FindingsMetric(TableMetricProvider):  # type: ignore[misc]  # Great Expectations has no types for us
    """The findings of Tidegate's checks by name, computed once per validation."""

    metric_name = "tidegate.findings"
    value_keys = ("judge",)

    @metric_value(engine=SparkDFExecutionEngine)  # type: ignore[untyped-decorator]
    def _spark(cls, metric_value_kwargs: dict[str, Any], **_: Any) -> Mapping[str, Finding]:  # noqa: N805  # a class
        return _JUDGES[metric_value_kwargs["judge"]]()

    @metric_value(engine=PandasExecutionEngine)  # type: ignore[untyped-decorator]
    def _pandas(cls, metric_value_kwargs: dict[str, Any], **_: Any) -> Mapping[str, Finding]:  # noqa: N805  # a class
        return _JUDGES[metric_value_kwargs["judge"]]()


class ExpectPromiseToHold(BatchExpectation):  # type: ignore[misc]  # as above
    """Turns the finding of a check into the result, evidence included."""

    judge: str
    check: str

    metric_dependencies: ClassVar[tuple[str, ...]] = (FindingsMetric.metric_name,)
    success_keys: ClassVar[tuple[str, ...]] = ("judge", "check")

    def _validate(self, metrics: dict[str, Any], **_: Any) -> dict[str, Any]:
        finding: Finding = metrics[FindingsMetric.metric_name][self.check]
        # Great Expectations rejects a result above 100 %
        percent = 100 * min(1.0, share(finding.unexpected_count, finding.element_count))
        result = {
            "observed_value": finding.sentence,
            "unexpected_percent": percent,
            **asdict(finding),
        }
        return {"success": bool(finding.success), "result": result}

    @classmethod
    @renderer(renderer_type=LegacyRendererType.PRESCRIPTIVE)  # type: ignore[untyped-decorator]
    def _prescriptive_renderer(
        cls, configuration: Any = None, result: Any = None, runtime_configuration: Any = None
    ) -> list[Any]:
        shown = configuration or result.expectation_config
        styling = (runtime_configuration or {}).get("styling", {})
        template = {
            "template": "$text",
            "params": {"text": shown.description or shown.type},
            "styling": styling,
        }
        return [
            RenderedStringTemplateContent(
                content_block_type="string_template", string_template=template
            )
        ]


def validate(
    specs: Sequence[CheckSpec],
    judge: Judge,
    frame: DataFrame | None,
    identity: Collection[str] = (),
) -> tuple[dict[str, Any], dict[str, str]]:
    """Validate a day.

    Args:
        specs: The checks.
        judge: Returns the findings of Tidegate's checks.
        frame: The day's rows, for the user's expectations; None without expectations.
        identity: Columns that identify a row at fault.

    Returns:
        Results by check name, and the reasons of checks that Great Expectations refuses.
    """
    number = uuid.uuid4().hex
    expectations, refused = [], {}
    for spec in specs:
        expectation = _build_expectation(spec, number)
        if isinstance(expectation, str):
            refused[spec.name] = expectation
        else:
            expectations.append(expectation)
    _JUDGES[number] = judge
    try:
        return _run(expectations, frame, [*identity]), refused
    finally:
        del _JUDGES[number]


def _build_expectation(spec: CheckSpec, judge: str) -> Any:
    common = {
        "severity": _SEVERITY[spec.severity],
        "description": spec.description,
        "meta": {"check": spec.name},
    }
    if spec.expectation is not None:
        return make_expectation(spec.expectation, common)
    return ExpectPromiseToHold(judge=judge, check=spec.name, **common)


def find_exception(info: dict[str, Any]) -> str | None:
    """Return the message of the exception that stopped a check, which is nested by metric."""
    if "raised_exception" in info:
        text = info["exception_message"] or ""
        cause = CAUSE.search(text)
        return one_line(cause[1] if cause else text, LONGEST) if info["raised_exception"] else None
    messages = [find_exception(inner) for inner in info.values() if isinstance(inner, dict)]
    return next((message for message in messages if message), None)


def _run(expectations: list[Any], frame: DataFrame | None, identity: list[str]) -> dict[str, Any]:
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False, "metric_calculations": False}
    if frame is None:
        source, rows = context.data_sources.add_pandas("rows"), pa.table({}).to_pandas()
    else:
        source, rows = context.data_sources.add_spark("rows", persist=False), frame
    asset = source.add_dataframe_asset("files").add_batch_definition_whole_dataframe("day")
    batch = asset.get_batch({"dataframe": rows})
    # a validation of the context would store the results as JSON, which numpy's booleans are not
    outcome = batch.validate(
        gx.ExpectationSuite(name="checks", expectations=expectations), result_format=SUMMARY
    )
    results = {result.expectation_config.meta["check"]: result for result in outcome.results}
    for expectation in expectations:
        check = expectation.meta["check"]
        if not results[check].success:
            results[check] = _with_rows(results[check], batch, expectation, identity)
    return results


def _with_rows(result: Any, batch: Any, expectation: Any, identity: list[str]) -> Any:
    """Return the result of a red rule about rows with its first rows, by a second validation."""
    is_query = isinstance(expectation, gxe.UnexpectedRowsExpectation)
    has_rows = is_query or (isinstance(expectation, OF_EACH_ROW) and identity)
    if not has_rows or find_exception(result.exception_info):
        return result
    shape = COMPLETE if is_query else SUMMARY | {"unexpected_index_column_names": identity}
    again = batch.validate(expectation, result_format=shape)
    return result if find_exception(again.exception_info) else again
