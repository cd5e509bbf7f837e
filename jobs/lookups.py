"""What is asked for every row: the declared lookups. Frozen, checked at construction, free of Spark."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import jsonpath
import sqlglot
from sqlglot import expressions as exp

from jobs.answer_types import AnswerColumn, read_ddl
from jobs.conditions import Conditions
from jobs.environment import Env, resolve
from jobs.errors import DeclarationError
from jobs.schema import LookupFacts
from jobs.services import Cache, Outage, Retry, Service, require_concurrency

if TYPE_CHECKING:
    from asyncio_core import AsyncFunction
    from jobs.callers import Caller

NAME = re.compile(r"[a-z][a-z0-9_]*")
Policy = Literal["null", "fail"]


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """What every lookup declares.

    keys: name -> Spark SQL expression over the input's columns. returns: Spark DDL of the answer's columns, all
    nullable. timeout: s over all attempts and the waits between them, from the first call; None waits without limit.
    ranges: column -> (smallest, largest) of an answer, None for no bound; null_share: column -> largest share of
    nulls among answers; both are checked on the output, not enforced on the way. version: raise it when the answers
    must be asked anew. cache: equal requests in flight in a task are one call, and its answer is used again; with None
    every row is called for.
    """

    name: str
    keys: Mapping[str, str]
    returns: str
    timeout: float | None
    retry: Retry = field(default_factory=Retry)
    on_null_key: Literal["skip", "fail"] = "skip"
    on_miss: Policy = "null"
    on_timeout: Policy = "null"
    on_error: Policy = "null"
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    null_share: Mapping[str, float] = field(default_factory=dict)
    cache: Cache | None = field(default_factory=Cache)
    version: int = 1

    kind = "lookup"
    finish_after_timeout = False  # a call that no row waits for any more is cancelled

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise DeclarationError(
                f"lookup {self.name!r}: the name must be lower-case letters, digits and _, starting with a letter; "
                "columns are named after it."
            )
        try:
            self._check()
        except DeclarationError as error:
            raise DeclarationError(f"lookup {self.name}: {error}") from error.__cause__

    def _check(self) -> None:
        if self.timeout is not None and not 0 < self.timeout < math.inf:
            raise DeclarationError(f"timeout is {self.timeout} s; it must be over 0, or None to wait without limit.")
        if not self.keys:
            raise DeclarationError("keys is empty; it must name at least one key and the Spark SQL that gives it.")
        for name, expression in self.keys.items():
            columns_in(f"keys.{name}", expression)
        answers = {column.name for column in self.columns}
        for name, named in (("ranges", set(self.ranges)), ("null_share", set(self.null_share))):
            unknown = sorted(named - answers)
            if unknown:
                raise DeclarationError(
                    f"{name}: {unknown[0]!r} is not a column of returns ({', '.join(sorted(answers))})."
                )
        for name, value, allowed in (
            ("on_null_key", self.on_null_key, ("skip", "fail")),
            ("on_miss", self.on_miss, ("null", "fail")),
            ("on_timeout", self.on_timeout, ("null", "fail")),
            ("on_error", self.on_error, ("null", "fail")),
        ):
            if value not in allowed:
                raise DeclarationError(f"{name} is {value!r}; it must be one of: {', '.join(allowed)}.")

    @property
    def columns(self) -> tuple[AnswerColumn, ...]:
        return read_ddl(self.returns)

    @property
    def concurrency(self) -> int:
        """Calls in flight over all tasks of a run."""
        raise NotImplementedError

    @property
    def service_name(self) -> str:
        """What people call the other side, in messages."""
        raise NotImplementedError

    @property
    def service_key(self) -> tuple[str, str]:
        """The same for lookups that ask one service: they share its gate and divide its calls in flight."""
        return self.kind, self.service_name

    @property
    def address(self) -> str:
        """Where the other side is, without a secret; empty when there is no saying."""
        return ""

    @property
    def outage_rule(self) -> Outage:
        raise NotImplementedError

    def caller(self, share: int) -> Caller:
        """The executor's side of this lookup, for one partition that may have `share` calls in flight."""
        raise NotImplementedError

    def facts(self) -> LookupFacts:
        retries = self.retry.retries
        return LookupFacts(
            name=self.name,
            kind=self.kind,
            service=self.service_name,
            returns=tuple((column.name, column.spark_type) for column in self.columns),
            timeout=self.timeout,
            max_concurrency=self.concurrency,
            retries=retries,
            initial_delay=self.retry.initial_delay if retries else 0.0,
            max_delay=self.retry.max_delay if retries else 0.0,
            multiplier=self.retry.multiplier,
            ranges=tuple((name, low, high) for name, (low, high) in self.ranges.items()),
            null_share=tuple(self.null_share.items()),
        )


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
        from jobs.http_lookup import HttpCaller

        return HttpCaller(self, share)


@dataclass(frozen=True, kw_only=True)
class SqlLookup(Lookup):
    """One row of a table by its key columns, through SQLAlchemy's asyncio engine.

    url: SQLAlchemy URL with an asyncio driver, as sqlite+aiosqlite:///planes.db. keys: column of the table -> Spark
    SQL. No row is a miss; two or more rows for one key are an error that says so.
    """

    url: str | Env
    table: str
    max_concurrency: int
    outage: Outage = field(default_factory=Outage)

    kind = "sql"

    def _check(self) -> None:
        super()._check()
        require_concurrency("sql", self.max_concurrency)

    @property
    def concurrency(self) -> int:
        return self.max_concurrency

    @property
    def service_name(self) -> str:
        return f"{self.name} database"

    @property
    def address(self) -> str:
        import sqlalchemy

        return sqlalchemy.make_url(resolve(self.url)).render_as_string(hide_password=True)

    @property
    def outage_rule(self) -> Outage:
        return self.outage

    def caller(self, share: int) -> Caller:
        from jobs.sql_lookup import SqlCaller

        return SqlCaller(self, share)


@dataclass(frozen=True, kw_only=True)
class AsyncFunctionLookup(Lookup):
    """Your own AsyncFunction, Flink's included: `async_invoke(keys: dict) -> list[dict]`.

    function: makes the AsyncFunction, once per partition (its class will do); it must be importable on the executors.
    An empty list is a miss, one dict is the answer, two or more are an error that says so. What it raises is retried,
    then an error.
    """

    function: Callable[[], AsyncFunction[Any, Any]]
    max_concurrency: int
    outage: Outage = field(default_factory=Outage)

    kind = "function"

    def _check(self) -> None:
        super()._check()
        require_concurrency("function", self.max_concurrency)

    @property
    def concurrency(self) -> int:
        return self.max_concurrency

    @property
    def service_name(self) -> str:
        return self.name

    @property
    def outage_rule(self) -> Outage:
        return self.outage

    def caller(self, share: int) -> Caller:
        from jobs.function_lookup import FunctionCaller

        return FunctionCaller(self, share)


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


def columns_in(where: str, expression: str) -> set[str]:
    """The columns that a Spark SQL expression reads. Raises DeclarationError when it cannot be read."""
    try:
        tree = sqlglot.parse_one(expression, read="spark")
    except sqlglot.errors.SqlglotError as error:
        raise DeclarationError(f"{where}: cannot read {expression!r} as a Spark SQL expression.") from error
    if not isinstance(tree, exp.Expression) or isinstance(tree, exp.Alias | exp.Query | exp.Command):
        raise DeclarationError(f"{where}: {expression!r} is not one Spark SQL expression without an alias.")
    return {column.parts[0].name for column in tree.find_all(exp.Column)}
