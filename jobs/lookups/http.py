"""A lookup that asks an HTTP service, declared."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import jsonpath

from jobs.errors import DeclarationError
from jobs.lookups.conditions import Conditions
from jobs.lookups.lookup import Lookup
from jobs.lookups.services import Outage, Service

if TYPE_CHECKING:
    from jobs.callers.caller import Caller


@dataclass(frozen=True, kw_only=True)
class HttpLookup(Lookup):
    """One HTTP request per key; the answer's JSON becomes columns.

    request: method and path, with {key} where a key's value goes, escaped. A timestamp is written in UTC as
    2013-01-10T05:00:00Z. paths: column -> JSON path (RFC 9535) into the answer, by default `$.<column>`. miss_when,
    throttled_when: what means "no such key" and "not now": statuses, or conditions on the JSON of an answer (2xx), as
    "$.status == 'ZERO_RESULTS'"; the latter closes the gate for Retry-After. attempt_timeout: s for one attempt, by
    default `timeout`. max_answer_bytes: a larger answer is an error; counted as unpacked. finish_after_timeout: when a
    row leaves at its time limit its request, billed anyway, goes on for up to attempt_timeout, and its answer is kept.
    """

    service: Service
    request: str
    paths: Mapping[str, str] = field(default_factory=dict)
    attempt_timeout: float | None = None
    miss_when: tuple[int | str, ...] = (404,)
    throttled_when: tuple[int | str, ...] = (429, 503)
    max_answer_bytes: int = 1 << 20
    finish_after_timeout: bool = False

    kind = "http"

    def _check(self) -> None:
        super()._check()
        self._check_request()
        self._check_answer()
        if self.attempt_timeout is not None and not 0 < self.attempt_timeout < math.inf:
            raise DeclarationError(f"attempt_timeout is {self.attempt_timeout} s; it must be over 0.")
        if self.finish_after_timeout and (self.attempt_timeout is None or self.cache is None):
            raise DeclarationError(
                "finish_after_timeout needs attempt_timeout, which bounds the request that goes on, and a cache, which "
                "keeps its answer."
            )

    def _check_request(self) -> None:
        method, _, path = self.request.partition(" ")
        if method != "GET" or not path.startswith("/"):
            raise DeclarationError(f'request is {self.request!r}; it must be GET and a path, as "GET /v1/{{origin}}".')
        used = _placeholders(self.request, path)
        if used != set(self.keys):
            odd = min(used ^ set(self.keys))
            where = "the request, but is no key" if odd in used else "keys, but the request does not use it"
            raise DeclarationError(f"request {self.request!r}: {odd!r} is in {where}.")

    def _check_answer(self) -> None:
        unknown = sorted(set(self.paths) - {column.name for column in self.columns})
        if unknown:
            raise DeclarationError(f"paths: {unknown[0]!r} is not a column of returns.")
        for column, json_path in self.paths.items():
            try:
                jsonpath.compile(json_path)
            except jsonpath.JSONPathError as error:
                raise DeclarationError(
                    f"paths: {column}: {json_path!r} is not a JSON path; write it as $.a.b."
                ) from error
        for where in ("miss_when", "throttled_when"):
            declared = getattr(self, where)
            if isinstance(declared, str | int):
                raise DeclarationError(f"{where} is {declared!r}; it must be a list, as [{declared!r}].")
            object.__setattr__(self, where, tuple(declared))
            Conditions(where, declared)
        size = self.max_answer_bytes
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise DeclarationError(f"max_answer_bytes is {size!r}; it must be a whole number, at least 1 (bytes).")

    @property
    def path(self) -> str:
        return self.request.partition(" ")[2]

    @property
    def concurrency(self) -> int:
        return self.service.max_concurrency

    @property
    def service_name(self) -> str:
        return self.service.name

    @property
    def address(self) -> str:
        parts = urlsplit(self.service.base_url)
        return parts.netloc.rpartition("@")[2]

    @property
    def outage_rule(self) -> Outage:
        return self.service.outage

    def caller(self, share: int) -> Caller:
        from jobs.callers.http import HttpCaller

        return HttpCaller(self, share)

    def request_facts(self) -> dict[str, Any]:
        service = {"name": self.service.name, "url": self.service.url}
        return super().request_facts() | {"service": service, "request": self.request, "miss_when": self.miss_when}


def _placeholders(request: str, path: str) -> set[str]:
    """The names that stand in braces. Raises DeclarationError for a path that could not be sent as it is written."""
    try:
        parts = list(string.Formatter().parse(path))
    except ValueError as error:
        raise DeclarationError(
            f"request {request!r}: a brace stands alone; write {{key}} for a key, {{{{ and }}}} for a brace."
        ) from error
    for literal, name, form, conversion in parts:
        if not literal.isascii() or not literal.isprintable() or " " in literal:
            raise DeclarationError(f"request {request!r}: {literal!r} holds what a URL cannot; write it %-escaped.")
        if form or conversion:
            raise DeclarationError(
                f"request {request!r}: {{{name}}} has a format; shape the value in keys, by Spark SQL."
            )
    return {name for _, name, _, _ in parts if name is not None}
