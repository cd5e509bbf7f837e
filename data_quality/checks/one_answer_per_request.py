"""One response for each request on a connection, so that no answer is another key's; as the tasks counted them."""

from __future__ import annotations

from typing import Any

from data_quality.check import LookupCheck
from data_quality.findings import Finding
from data_quality.written_day import WrittenDay

OVER_HTTP = ("http", "coroutine")  # lookups whose answers are matched to requests by their order alone


class OneAnswerPerRequest(LookupCheck):
    name = "one_answer_per_request"
    red_when = (
        "a connection to the service brought more responses than requests, so that its answers may be other keys' "
        "([lookups](lookups.md)); HTTP lookups and coroutines, as the tasks counted"
    )

    @property
    def wanted(self) -> bool:
        return self.lookup.kind in OVER_HTTP

    @property
    def promise(self) -> str:
        return (
            f"Each connection to {self.lookup.service} brought one answer per request, so that none is another key's."
        )

    def finding(self, _parts: list[Any], day: WrittenDay) -> Finding:
        metrics, service = day.metrics_of(self.lookup), self.lookup.service
        if metrics is None or (metrics.requests is None and metrics.calls):
            return Finding.not_run("the responses were not counted")
        counted = metrics.requests
        answered, in_doubt = (0, 0) if counted is None else (counted.answered, counted.in_doubt)
        most = max(answered, in_doubt)
        return Finding.judged(
            f"no connection to {service} brought more responses than requests, {answered:,} were answered",
            f"{in_doubt:,} of {most:,} answers of {service} are in doubt: their connections brought a response too "
            "many, so that an answer may be another key's; the ledger gives them to no row any more, and the next run "
            "asks for them again",
            in_doubt,
            most,
            "one response per request",
        )
