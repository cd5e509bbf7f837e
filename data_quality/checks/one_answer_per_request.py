"""Checks, by the tasks' counts, that each connection brought one response per request."""

from typing import Any

from data_quality.check import LookupCheck
from data_quality.findings import Finding
from data_quality.rows.written_day import WrittenDay

# lookups whose answers are matched to requests by their order alone
OVER_HTTP = ("http", "coroutine")


class OneAnswerPerRequest(LookupCheck):
    name = "one_answer_per_request"

    @property
    def wanted(self) -> bool:
        return self.lookup.kind in OVER_HTTP

    @property
    def promise(self) -> str:
        return (
            f"Each connection to {self.lookup.service} brought one answer per request, so that "
            "none is another key's."
        )

    def finding(self, _parts: list[Any], day: WrittenDay) -> Finding:
        metrics, service = day.find_metrics(self.lookup), self.lookup.service
        if metrics is None or (metrics.requests is None and metrics.calls):
            return Finding.not_run("the run did not count the responses")
        counted = metrics.requests
        answered, in_doubt = (0, 0) if counted is None else (counted.answered, counted.in_doubt)
        most = max(answered, in_doubt)
        return Finding.judged(
            f"no connection to {service} brought more responses than its requests, {answered:,} in "
            "all",
            f"{in_doubt:,} of {most:,} answers of {service} are in doubt: their connections "
            "brought a response too many, so that an answer may be another key's; the ledger no "
            "longer serves them, and the next run calls for them again",
            in_doubt,
            most,
            "one response per request",
        )
