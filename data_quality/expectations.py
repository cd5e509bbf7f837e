"""The promises as Great Expectations: for any Spark table with the audit columns.

Each takes `facts`, a `DayFacts` as JSON, and those about one lookup its name. Those that share a metric share its Spark
jobs: Great Expectations computes a metric once per validation run.
"""

from __future__ import annotations

from typing import Any, ClassVar

from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render import LegacyRendererType, RenderedStringTemplateContent
from great_expectations.render.renderer.renderer import renderer

from data_quality import answers, history, identity, in_flight, order, rows, same_values
from data_quality.findings import Finding, share
from jobs.schema import DayFacts


# -- metrics -----------------------------------------------------------------------------------------------------------
class AuditMetric(TableMetricProvider):  # type: ignore[misc]  # Great Expectations has no types for us
    """The findings of one module, by check name."""

    value_keys = ("facts",)
    judge: ClassVar[Any]  # (frame, facts) -> findings by check name

    @metric_value(engine=SparkDFExecutionEngine)  # type: ignore[untyped-decorator]
    def _spark(
        cls,  # noqa: N805  # Great Expectations hands the class over
        execution_engine: Any,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        **_: Any,
    ) -> dict[str, Any]:
        frame, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        found: dict[str, Any] = cls.judge(frame, DayFacts.from_json(metric_value_kwargs["facts"]))
        return found


class RowsMetric(AuditMetric):
    metric_name = "audit.rows"
    judge = staticmethod(rows.judge)


class OrderMetric(AuditMetric):
    metric_name = "audit.order"
    judge = staticmethod(order.judge)


class InFlightMetric(AuditMetric):
    metric_name = "audit.in_flight"
    judge = staticmethod(in_flight.judge)


class IdentityMetric(AuditMetric):
    metric_name = "audit.identity"
    judge = staticmethod(identity.judge)


# -- expectations ------------------------------------------------------------------------------------------------------
class PromiseExpectation(BatchExpectation):  # type: ignore[misc]  # as above
    """What they have in common: one finding of one metric becomes the result, evidence included."""

    facts: str
    lookup: str | None = None

    rule: ClassVar[str] = ""
    metric_dependencies: ClassVar[tuple[str, ...]] = ()
    success_keys: ClassVar[tuple[str, ...]] = ("facts", "lookup")

    def _finding(self, metrics: dict[str, Any]) -> Finding:
        found: Finding = metrics[self.metric_dependencies[0]][self.check]
        return found

    @property
    def check(self) -> str:
        return f"{self.lookup}__{self.rule}" if self.lookup else self.rule

    def _validate(self, metrics: dict[str, Any], **_: Any) -> dict[str, Any]:
        finding = self._finding(metrics)
        percent = 100 * min(
            1.0, share(finding.unexpected_count, finding.element_count)
        )  # a result beyond 100 % is refused
        result = {"observed_value": finding.sentence, "unexpected_percent": percent, **finding.plain()}
        return {"success": bool(finding.success), "result": result}

    @classmethod
    @renderer(renderer_type=LegacyRendererType.PRESCRIPTIVE)  # type: ignore[untyped-decorator]
    def _prescriptive_renderer(
        cls, configuration: Any = None, result: Any = None, runtime_configuration: Any = None
    ) -> list[Any]:
        """The check's sentence in place of its arguments."""
        shown = configuration or result.expectation_config
        styling = (runtime_configuration or {}).get("styling", {})
        template = {"template": "$text", "params": {"text": shown.description or shown.type}, "styling": styling}
        return [RenderedStringTemplateContent(content_block_type="string_template", string_template=template)]


class ExpectEveryRowOnce(PromiseExpectation):
    rule = "every_row_once"
    metric_dependencies = ("audit.identity",)


class ExpectInputUnchanged(PromiseExpectation):
    rule = "input_unchanged"
    metric_dependencies = ("audit.identity",)


class ExpectOutcomesAddUp(PromiseExpectation):
    """`counted`, if given, are the run's own counts by lookup and outcome, which the recount has to equal."""

    counted: dict[str, dict[str, int]] | None = None
    rule = "outcomes_add_up"
    metric_dependencies = ("audit.rows",)

    def _finding(self, metrics: dict[str, Any]) -> Finding:
        finding, recount = super()._finding(metrics), metrics["audit.rows"].get("counts", {}).get("outcomes", {})
        for lookup, outcomes in (self.counted or {}).items():
            wrong = {name: count for name, count in outcomes.items() if recount.get(lookup, {}).get(name, 0) != count}
            if finding.success and wrong:
                name, count = next(iter(wrong.items()))
                there = recount.get(lookup, {}).get(name, 0)
                text = f"the run counted {count:,} {name} for {lookup}, the files have {there:,}"
                return Finding(False, text, abs(count - there), finding.element_count, finding.expected)
        return finding


class ExpectOrderHeld(PromiseExpectation):
    rule = "order_held"
    metric_dependencies = ("audit.order",)


class ExpectWatermarksNotCrossed(PromiseExpectation):
    rule = "watermarks_not_crossed"
    metric_dependencies = ("audit.order",)


class ExpectLateRowsMarked(PromiseExpectation):
    rule = "late_rows_marked"
    metric_dependencies = ("audit.order",)


class ExpectTimeLimitHeld(PromiseExpectation):
    rule = "time_limit_held"
    metric_dependencies = ("audit.rows",)


class ExpectTimeoutsTolerated(PromiseExpectation):
    rule = "timeouts_tolerated"
    metric_dependencies = ("audit.rows",)


class ExpectErrorsTolerated(PromiseExpectation):
    rule = "errors_tolerated"
    metric_dependencies = ("audit.rows",)


class ExpectRetriesHeld(PromiseExpectation):
    rule = "retries_held"
    metric_dependencies = ("audit.rows",)


class ExpectConcurrencyHeld(PromiseExpectation):
    """`most_at_once`, if given: requests in flight in each task, by number; of a lookup that asks for many keys."""

    most_at_once: list[int] | None = None
    rule = "concurrency_held"
    metric_dependencies = ("audit.in_flight",)

    def _finding(self, metrics: dict[str, Any]) -> Finding:
        finding = super()._finding(metrics)
        if not finding.success or not self.most_at_once:
            return finding
        return in_flight.requests_held(DayFacts.from_json(self.facts), self.lookup or "", self.most_at_once)


class ExpectAnswersInRange(PromiseExpectation):
    rule = "answers_in_range"
    metric_dependencies = ("audit.rows",)


class ExpectAnswersMatch(PromiseExpectation):
    """`answers`, if given: the finding about the answers themselves, by what is stored of them, as plain data."""

    answers: dict[str, Any] | None = None
    rule = "answers_match"
    metric_dependencies = ("audit.rows", "audit.identity")

    def _finding(self, metrics: dict[str, Any]) -> Finding:
        of_key = same_values.keys_of(self.lookup or "")
        why_not = Finding.not_run("the answers were not compared")
        by_answer = why_not if self.answers is None else Finding(**self.answers)
        return answers.together([by_answer, super()._finding(metrics), metrics["audit.identity"].get(of_key, why_not)])


class ExpectMissShareUsual(PromiseExpectation):
    """`shares`: the share of misses on each earlier day."""

    shares: list[float]
    rule = "miss_share_usual"
    metric_dependencies = ("audit.rows",)

    def _finding(self, metrics: dict[str, Any]) -> Finding:
        counts = metrics["audit.rows"].get("counts")
        if counts is None:
            return Finding.not_run("the outcomes could not be counted")
        change = DayFacts.from_json(self.facts).declared.miss_change
        misses = counts["outcomes"][self.lookup]["miss"]
        return history.miss_share_usual(misses, counts["rows"], self.shares, change if change is not None else 1.0)


class ExpectCallsReconciled(PromiseExpectation):
    """`stored`: the answers and misses that the run left in the ledger, counted there. `sent`: requests, and the keys
    that they asked for, counted where they were sent. `called`: rows that were called for, and their distinct keys.
    """

    stored: int | None = None
    sent: list[int] | None = None
    called: list[int] | None = None
    rule = "calls_reconciled"
    metric_dependencies = ("audit.rows",)

    def _finding(self, metrics: dict[str, Any]) -> Finding:
        answered = metrics["audit.rows"].get("counts", {}).get("answered", {}).get(self.lookup)
        if answered is None or self.stored is None:
            return Finding.not_run("the answers that came by call, or those in the ledger, were not counted")
        expected = "every answer that came by call is in the ledger, and each distinct key was called for once"
        if self.called is not None and self.called[0] > self.called[1]:
            rows, distinct = self.called
            text = f"{rows - distinct:,} of {rows:,} calls repeat one of this run's {distinct:,} keys"
            return Finding(False, text, rows - distinct, rows, expected)
        if self.stored < answered:
            lost = answered - self.stored
            text = (
                f"{lost:,} of {answered:,} answers that came by call are not kept: they are asked for again next time"
            )
            return Finding(False, text, lost, answered, expected)
        asked = ""
        if self.sent is not None:
            requests, keys = self.sent
            asked = f"; {requests:,} requests asked for {keys:,} keys"
            asked += "" if self.called is None else f", {self.called[1]:,} distinct"
            if keys < answered:
                text = (
                    f"{answered - keys:,} of {answered:,} answers that came by call were asked for by no request{asked}"
                )
                return Finding(False, text, answered - keys, answered, expected)
        more = self.stored - answered
        also = f"; {more:,} more are, of tasks that ran again or of rows that had left" if more else ""
        return Finding(True, f"all {answered:,} answers that came by call are kept{also}{asked}", 0, answered, expected)


class ExpectOneAnswerPerRequest(PromiseExpectation):
    """`answers`: those that came by request, and of these the ones on a connection that brought a response too many."""

    answers: list[int] | None = None
    rule = "one_answer_per_request"
    metric_dependencies = ("audit.rows",)

    def _finding(self, metrics: dict[str, Any]) -> Finding:  # noqa: ARG002  # no row shows it
        if self.answers is None:
            return Finding.not_run("the responses were not counted")
        answered, in_doubt = self.answers
        lookups = DayFacts.from_json(self.facts).declared.lookups
        service = next(lookup.service for lookup in lookups if lookup.name == self.lookup)
        return Finding.judged(
            f"no connection to {service} brought more responses than requests, {answered:,} were answered",
            f"{in_doubt:,} of {max(answered, in_doubt):,} answers of {service} are in doubt: their connections brought "
            "a response too many, so that an answer may be another key's; the ledger gives them to no row any more, "
            "and the next run asks for them again",
            in_doubt,
            max(answered, in_doubt),
            "one response per request",
        )


class ExpectInputDayComplete(PromiseExpectation):
    """`row_counts`: the rows of the input on each earlier day to compare with."""

    row_counts: list[int]
    rule = "input_day_complete"
    metric_dependencies = ("audit.identity",)

    def _finding(self, metrics: dict[str, Any]) -> Finding:
        return history.input_day_complete(metrics["audit.identity"]["rows_in"], self.row_counts)


BY_RULE: dict[str, type[PromiseExpectation]] = {
    kind.rule: kind
    for kind in (
        ExpectEveryRowOnce,
        ExpectInputUnchanged,
        ExpectOutcomesAddUp,
        ExpectOrderHeld,
        ExpectWatermarksNotCrossed,
        ExpectLateRowsMarked,
        ExpectInputDayComplete,
        ExpectTimeLimitHeld,
        ExpectTimeoutsTolerated,
        ExpectErrorsTolerated,
        ExpectRetriesHeld,
        ExpectConcurrencyHeld,
        ExpectAnswersInRange,
        ExpectAnswersMatch,
        ExpectMissShareUsual,
        ExpectCallsReconciled,
        ExpectOneAnswerPerRequest,
    )
}
