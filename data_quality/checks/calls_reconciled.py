"""Checks that each distinct key was called once, and that the ledger has every answer of a call."""

from data_quality.check import LookupCheck
from data_quality.findings import Finding
from data_quality.rows.task_rows import TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.wording import counted


class CallsReconciled(LookupCheck):
    name = "calls_reconciled"
    severity = "warn"
    promise = (
        "Each distinct key is called once, and every answer is stored, so that no run calls "
        "for it again."
    )
    expected = (
        "every answer that came by call is in the ledger, and each distinct key was called once"
    )

    @property
    def wanted(self) -> bool:
        return self.declared.ledger is not None

    @property
    def needs(self) -> tuple[str, ...]:
        return self.status, self.source

    def summarize(self, rows: TaskRows, _day: WrittenDay) -> int:
        return int(self.answered_by_call(rows).sum())

    def finding(self, parts: list[int], day: WrittenDay) -> Finding:
        answered, metrics = sum(parts), day.find_metrics(self.lookup)
        if metrics is None or metrics.stored is None:
            return Finding.not_run(
                "the run did not count answers that came by call, or answers in the ledger"
            )
        keys = metrics.keys_called
        called = metrics.rows_called
        if keys is not None and (again := called - keys) > 0:
            text = f"{again:,} of {called:,} calls repeat one of this run's {keys:,} keys"
            return self._red(text, again, called)
        by_call = "answers that came by call are"
        if (lost := answered - metrics.stored) > 0:
            return self._red(
                f"{lost:,} of {answered:,} {by_call} not stored: the next run calls for them again",
                lost,
                answered,
            )
        asked = ""
        # a coroutine's answer may need no request
        if metrics.requests is not None and self.lookup.kind != "coroutine":
            sent = metrics.requests
            asked = f"; {counted(sent.sent, 'request')} with {counted(sent.items, 'key')}"
            asked += "" if keys is None else f", {keys:,} distinct"
            if (unasked := answered - sent.items) > 0:
                text = (
                    f"{unasked:,} of {answered:,} answers that came by call have no request{asked}"
                )
                return self._red(text, unasked, answered)
        more = metrics.stored - answered
        also = (
            f"; {more:,} more are: answers that did not fit, that came after their row had timed "
            "out, or of tasks that ran again"
            if more
            else ""
        )
        return Finding(
            True, f"all {answered:,} {by_call} stored{also}{asked}", 0, answered, self.expected
        )

    def _red(self, text: str, unexpected: int, elements: int) -> Finding:
        return Finding(False, text, unexpected, elements, self.expected)
