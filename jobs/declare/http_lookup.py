"""Lookups over HTTP."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jobs.declare.answers.answer_schema import load_schema
from jobs.declare.answers.conditions import Conditions
from jobs.declare.answers.inner_answer import InnerAnswer
from jobs.declare.answers.json_paths import JsonPath
from jobs.declare.answers.usage import UsageReader
from jobs.declare.auth import ApiKey
from jobs.declare.batch import Batch, Pages
from jobs.declare.lookup import Lookup
from jobs.declare.services import Service
from jobs.declare.values.env import Env
from jobs.declare.values.fingerprint import NOT_IN_FINGERPRINT, WHERE_DECLARED
from jobs.declare.values.templates import (
    JsonTemplate,
    placeholders,
    require_same_names,
    without_placeholder,
)
from jobs.declare.values.type_checks import require_count
from jobs.errors import DeclarationError

SCHEMA, REPAIR = "schema", "repair"  # placeholders in the body
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
METHODS = ("GET", "POST", "PUT")
NOT_DECLARED = frozenset(
    {"authorization", "proxy-authorization", "cookie", "host", "content-length", "connection"}
)
STATUSES_OF_A_MISS = (404,)
UNANSWERED = {  # statuses of 200 to 299 that are no answers by default
    202: "accepted, not answered; where its body is an answer, write answer_when=[202]",
    206: "only a part of the answer; where it is all, write answer_when=[206]",
    207: "several answers, each with a status of its own; where it is one, write answer_when=[207]",
    208: "answered elsewhere; where its body is an answer, write answer_when=[208]",
}


@dataclass(frozen=True, kw_only=True)
class HttpLookup(Lookup):
    """An HTTP request per key, or per batch of keys; the answer's JSON becomes columns.

    Attributes:
        service: The service to call.
        request: Method (GET, POST, PUT) and path, with {key} for a key's value, escaped. A
            timestamp is written in UTC as 2013-01-10T05:00:00Z.
        body: Any JSON, with {key} in its strings; a string that is only a {key} becomes the key's
            JSON value: a number stays a number. An Env in it is a secret.
        headers: Sent with every request; not for secrets.
        batch: Many keys in a request; max_concurrency counts requests.
        pages: An answer in several pages.
        paths: Column -> JSON path (RFC 9535) into the answer, by default `$.<column>`.
        attempt_timeout: Seconds for an attempt with all its pages, by default `timeout`.
        miss_when: Statuses, or conditions on the JSON of a 2xx answer, that mean a miss, such as
            "$.status == 'ZERO_RESULTS'".
        throttled_when: Likewise for throttling; pauses the service for the time in Retry-After.
        error_when: Likewise for errors that look like answers; in a batch, conditions on an item's
            answer.
        answer_when: Statuses of 202, 206, 207 and 208 that are answers; by default they are errors.
        required: Columns of returns that an answer must fill; otherwise it is an error.
        max_answer_bytes: A larger answer is an error. Counts unpacked bytes, of all pages together,
            and of a batch's whole answer.
        finish_after_timeout: When a row leaves at its time limit, its request, billed anyway,
            continues for up to attempt_timeout, and its answer is stored.
        echo: Key -> JSON path of the key in an answer, such as {"customer": "$.customer_id"}. An
            answer with another key is an error, is not stored, and its connection is not used
            again.
        idempotency_header: Header, such as "Idempotency-Key", by which the service recognizes a
            repeated call: its value is the same in every attempt and run for a key and request.
            With it, a lookup with idempotent=False calls again after its answer was lost, and its
            rows are never `unknown`.
        hedge_after: Seconds without an answer, or "p95" of the latest answers, after which a
            request is sent a second time if no other row waits for a call. The first answer counts.
            Only for a service without prices.
        bill: Unit -> JSON path of the number that a request used, in its whole answer, as
            {"input_tokens": "$.usage.prompt_tokens"}; a difference is written
            "$.usage.prompt_tokens - $.usage.prompt_tokens_details.cached_tokens". Read from errors
            too; an error without the number costs nothing. A number in place of a path, as
            {"hits": 1}, is what each answer costs; a miss, or an error by its status, costs
            nothing.
        model: The model whose prices hold; by default the text `model` of the body.
        answer: JSON path of the answer inside the response, as "$.choices[0].message.content"; a
            text there is read as JSON, also in a Markdown fence. `paths`, `required` and `schema`
            count from there; conditions, `echo`, `bill` and `batch` from the response.
        schema: JSON Schema that an answer must fit, otherwise it is an error: a dict, the path of a
            JSON file, or a class of pydantic, whose validators do not run. "{schema}" as a whole
            text of the body becomes the schema.
        cut_when: Condition on the response, or a list of them, that means a cut answer, as
            "$.choices[0].finish_reason == 'length'": an error that is not sent again.
        repair: 1 asks once more for an answer that does not fit, unless it is cut or an error by
            error_when. "{repair}" in a text of the body, as in "{review}{repair}", becomes the
            reason; in a first request it is empty.
    """

    service: Service
    request: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    batch: Batch | None = None
    pages: Pages | None = None
    paths: Mapping[str, str] = field(default_factory=dict)
    attempt_timeout: float | None = None
    miss_when: tuple[int | str, ...] = STATUSES_OF_A_MISS
    throttled_when: tuple[int | str, ...] = (429, 503)
    error_when: tuple[int | str, ...] = field(default=(), metadata=WHERE_DECLARED)
    answer_when: tuple[int, ...] = field(default=(), metadata=WHERE_DECLARED)
    required: tuple[str, ...] = field(default=(), metadata=WHERE_DECLARED)
    max_answer_bytes: int = 1 << 20
    finish_after_timeout: bool = False
    echo: Mapping[str, str] = field(default_factory=dict, metadata=WHERE_DECLARED)
    idempotency_header: str | None = field(default=None, metadata=WHERE_DECLARED)
    hedge_after: float | Literal["p95"] | None = field(default=None, metadata=WHERE_DECLARED)  # type: ignore[misc]
    bill: Mapping[str, str | int] = field(default_factory=dict, metadata=NOT_IN_FINGERPRINT)  # type: ignore[misc]
    model: str | None = field(default=None, metadata=NOT_IN_FINGERPRINT)  # type: ignore[misc]
    answer: str | None = field(default=None, metadata=WHERE_DECLARED)
    schema: Any = field(default=None, metadata=WHERE_DECLARED)
    cut_when: str | tuple[str, ...] = field(default=(), metadata=WHERE_DECLARED)
    repair: int = field(default=0, metadata=WHERE_DECLARED)  # type: ignore[misc]

    kind = "http"

    def _check(self) -> None:
        self._check_model()
        UsageReader(self.bill)
        if self.schema is not None:
            object.__setattr__(self, "schema", load_schema(self.schema))
        if self.answer is not None:
            InnerAnswer(self.answer)
        super()._check()
        self._check_request()
        self._check_headers()
        self._check_answer()
        self._check_echo()
        self._check_hedge()
        self._check_repair()
        if self.batch is not None:
            self._check_batch(self.batch)
        if self.finish_after_timeout and (self.attempt_timeout is None or self.cache is None):
            raise DeclarationError(
                "finish_after_timeout needs attempt_timeout, which bounds the request that goes "
                "on, and a cache, which keeps its answer."
            )

    def _check_model(self) -> None:
        body = self.body if self.batch is None else self.batch.body
        sent = body.get("model") if isinstance(body, Mapping) else None
        if not isinstance(sent, str) or JsonTemplate("body", sent).names:
            return
        if self.model is None:
            object.__setattr__(self, "model", sent)
        elif self.model != sent:
            raise DeclarationError(
                f"model: it is {self.model!r}, and the body has {sent!r}; leave out model."
            )

    def _check_hedge(self) -> None:
        after = self.hedge_after
        if after is None:
            return
        if after != "p95" and not (isinstance(after, int | float) and 0 < after < math.inf):
            raise DeclarationError(
                f'hedge_after is {after!r}; it must be seconds, over 0, or "p95".'
            )
        if not self.idempotent or self.prices or self.batch is not None:
            has = (
                "idempotent=False" if not self.idempotent else "a batch" if self.batch else "prices"
            )
            raise DeclarationError(
                f"hedge_after sends a request a second time, and the lookup has {has}; leave one "
                "of them out."
            )

    def _check_repair(self) -> None:
        if self.repair not in (0, 1):
            raise DeclarationError(f"repair is {self.repair!r}; it must be 0 or 1 (requests).")
        several = {
            "batch": self.batch is not None,
            "pages": self.pages is not None,
            "idempotent=False": not self.idempotent,
            "idempotency_header": self.idempotency_header is not None,
            "cache=None": self.cache is None,
        }
        excluded = [name for name, is_declared in several.items() if is_declared]
        if self.repair and excluded:
            raise DeclarationError(
                f"repair: it sends a second request for the same key, which {excluded[0]} does "
                "not allow; leave one of them out."
            )
        template = JsonTemplate("body", self.body)
        is_placed = REPAIR in template.names and REPAIR not in self.keys
        if is_placed != bool(self.repair) or (is_placed and REPAIR in template.whole):
            raise DeclarationError(
                'body: repair=1 and "{repair}" go together; it stands in a longer text, such as '
                '"{review}{repair}", since it is empty in a first request.'
            )

    def _check_request(self) -> None:
        if self.method not in METHODS or not self.path.startswith("/"):
            raise DeclarationError(
                f"request is {self.request!r}; it must be GET, POST or PUT and a path, such as "
                f'"GET /v1/{{origin}}".'
            )
        if self.method == "GET" and (self.body is not None or self.batch is not None):
            declared = "body" if self.body is not None else "batch"
            raise DeclarationError(f"{declared}: a GET request has no body; write POST or PUT.")
        if self.method != "GET" and self.pages is not None:
            raise DeclarationError(
                f"pages: they are requested by GET, but request is {self.request!r}; "
                "begin it with GET, or leave pages out."
            )
        used = _placeholders(self.request, self.path) | JsonTemplate("body", self.first_body).names
        used -= self._check_schema_place()
        if self.batch is not None:
            if used or self.body is not None:
                raise DeclarationError(
                    "batch: keys go into batch.item and the body into batch.body, not into the "
                    "path or `body`."
                )
            self.batch.check(list(self.keys), self.timeout)
        else:
            whole = "the request" if self.body is None else "the request or its body"
            require_same_names(f"request {self.request!r}", whole, used, self.keys)

    def _check_schema_place(self) -> set[str]:
        """Return the name in the body that stands for the schema."""
        body = JsonTemplate("body", self.body)
        if SCHEMA not in body.names or SCHEMA in self.keys:
            return set()
        if self.schema is None or body.whole.count(SCHEMA) != 1:
            raise DeclarationError(
                'body: "{schema}" stands for the declared schema, once, as a text of its own; '
                "declare schema, or rename it."
            )
        return {SCHEMA}

    def _check_batch(self, batch: Batch) -> None:
        statuses = [status for status in self.miss_when if isinstance(status, int)]
        if statuses and self.miss_when != STATUSES_OF_A_MISS:
            raise DeclarationError(
                f"miss_when holds {statuses[0]}; in a batch a status is about the whole request, "
                "so write a condition on the answer of an item, such as \"$.status == 'NONE'\"."
            )
        if batch.max_items > 1 and self.attempt_timeout is None and self.timeout is None:
            raise DeclarationError(
                "batch: it needs timeout or attempt_timeout; else one hung request holds all its "
                "keys."
            )

    def _check_headers(self) -> None:
        auth = self.service.auth
        of_auth = {auth.header.lower()} if isinstance(auth, ApiKey) else set()
        for name, value in self.headers.items():
            if not isinstance(name, str) or not HEADER.fullmatch(name):
                raise DeclarationError(
                    f"headers: {name!r} is not a header name; write letters, digits and -."
                )
            if name.lower() in NOT_DECLARED | of_auth:
                raise DeclarationError(
                    f"headers: {name} is not allowed here; declare it as the service's auth."
                )
            if (
                not isinstance(value, str)
                or not value.isascii()
                or not value.isprintable()
                or value != value.strip()
            ):
                raise DeclarationError(
                    f"headers: {name} must be one line of ASCII text without spaces at its ends."
                )
        self._check_idempotency_header(of_auth)

    def _check_idempotency_header(self, of_auth: set[str]) -> None:
        name = self.idempotency_header
        if name is None:
            return
        if not HEADER.fullmatch(name):
            raise DeclarationError(
                f"idempotency_header: {name!r} is not a header name; write letters, digits and -."
            )
        if name.lower() in NOT_DECLARED | of_auth | {
            "content-type",
            *(other.lower() for other in self.headers),
        }:
            raise DeclarationError(
                f"idempotency_header: {name} has another use already; name the header by which the "
                "service recognizes a repeated call, such as Idempotency-Key."
            )
        if self.batch is not None or self.pages is not None:
            several = "batch" if self.batch is not None else "pages"
            raise DeclarationError(
                f"idempotency_header: with {several} keys and requests do not match one to one, so "
                "the service could not recognize a repeated call; leave out "
                f"{several} or the header."
            )

    def _check_echo(self) -> None:
        if self.echo and self.batch is not None:
            raise DeclarationError(
                "echo: the answers of a batch are matched by batch.match; declare that."
            )
        for name, json_path in self.echo.items():
            if name not in self.keys:
                raise DeclarationError(
                    f"echo: {name!r} is not a key; the keys are {', '.join(self.keys)}."
                )
            if not JsonPath(f"echo: {name}", json_path).picks_one:
                raise DeclarationError(
                    f"echo: {name}: {json_path!r} may match several values; name one."
                )

    def answer_path(self, column: str) -> str:
        """Return the JSON path of a column.

        Args:
            column: A column of `returns`.
        """
        return self.paths.get(column, f"$.{column}")

    def _check_answer(self) -> None:
        self._require_columns(paths=self.paths, required=self.required)
        for column, json_path in self.paths.items():
            JsonPath(f"paths: {column}", json_path, lenient=True)
        for name in (column.name for column in self.columns if column.name not in self.paths):
            if not _is_member(name):  # as x.y, which is the member y of x
                raise DeclarationError(
                    f"returns: $.{name} is not the path of a member {name!r}; declare its path in "
                    f'paths, such as "$[{name!r}]".'
                )
        if isinstance(self.cut_when, str):
            object.__setattr__(self, "cut_when", (self.cut_when,))
        if statuses := Conditions("cut_when", self.cut_when).statuses:
            raise DeclarationError(
                f"cut_when holds {min(statuses)}; write a condition on the response, such as "
                "\"$.choices[0].finish_reason == 'length'\"."
            )
        lists = ("miss_when", "throttled_when", "error_when", "answer_when", "required")
        for where in lists:
            declared = getattr(self, where)
            if isinstance(declared, str | int):
                raise DeclarationError(
                    f"{where} is {declared!r}; it must be a list, such as [{declared!r}]."
                )
            object.__setattr__(self, where, tuple(declared))
        self._check_conditions()
        require_count("max_answer_bytes", self.max_answer_bytes)

    def _check_conditions(self) -> None:
        meant: dict[int, str] = dict.fromkeys(self.service.stop_on, "the service's stop_on")
        for where in ("throttled_when", "miss_when", "error_when"):
            statuses = Conditions(where, getattr(self, where)).statuses
            for status in sorted(statuses & set(meant)):
                # a miss may be in stop_on: some services answer 403 for a missing key
                if where == "error_when" or meant[status] == "throttled_when":
                    raise DeclarationError(
                        f"{where}: {status} is in {meant[status]} too; remove it from one of them."
                    )
            meant |= dict.fromkeys(statuses, where)
        for status in self.answer_when:
            if status not in UNANSWERED or status in meant:
                why = f"is in {meant[status]} too" if status in meant else "cannot be an answer"
                raise DeclarationError(
                    f"answer_when: {status} {why}; write one of {', '.join(map(str, UNANSWERED))}, "
                    "and only here."
                )

    def variables(self) -> Iterator[Env]:
        yield from super().variables()
        yield from self.secrets()

    def secrets(self) -> Iterator[Env]:
        """Yield the secrets in the body of a request."""
        bodies = [self.body] if self.batch is None else [self.batch.body, self.batch.item]
        for body in bodies:
            yield from JsonTemplate("body", body).variables

    @property
    def judges_answers(self) -> bool:
        return bool(self.error_when or self.required)

    @property
    def first_body(self) -> Any:
        """The body of a first request, which has no reason for another one."""
        return self.body if REPAIR in self.keys else without_placeholder(self.body, REPAIR)

    @property
    def method(self) -> str:
        return self.request.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.request.partition(" ")[2]

    @property
    def longest_call(self) -> float | None:
        return self.attempt_timeout or self.timeout

    @property
    def repeatable(self) -> bool:
        return self.idempotent or self.idempotency_header is not None

    @property
    def denial_settles(self) -> bool:
        # a page may be denied after others were read, and a failure may follow work
        statuses = self.service.stop_on
        return self.pages is None and all(400 <= status < 500 for status in statuses)

    @property
    def batch_size(self) -> int:
        return 1 if self.batch is None else self.batch.max_items

    @property
    def trusts(self) -> str | None:
        return None if self.batch is None else self.batch.trusts

    def request_facts(self) -> dict[str, Any]:
        facts = {
            "service": self.service.request_facts(),
            "request": self.request,
            "miss_when": self.miss_when,
        }
        if self.body is not None:
            facts["body"] = self.first_body
            if SCHEMA in JsonTemplate("body", self.body).names - set(self.keys):
                facts["schema"] = self.schema
        if self.headers:
            facts["headers"] = self.headers
        if self.batch is not None:
            names: tuple[str, ...] = ("item", "body", "answers", "match", "left_out")
            names += () if self.batch.position is None else ("position",)
            facts["batch"] = {name: getattr(self.batch, name) for name in names}
        if self.pages is not None:
            facts["pages"] = {
                name: getattr(self.pages, name) for name in ("next", "items", "parameter")
            } | ({} if self.pages.more is None else {"more": self.pages.more})
        return super().request_facts() | facts


def _placeholders(request: str, path: str) -> set[str]:
    """Return the names in braces. Raises DeclarationError for a path that a URL cannot contain."""
    parts = placeholders("request", path)
    for literal, _ in parts:
        if not literal.isascii() or not literal.isprintable() or {" ", "#"} & set(literal):
            raise DeclarationError(
                f"request {request!r}: {literal!r} cannot be in a URL; write it %-escaped."
            )
    return {name for _, name in parts if name is not None}


def _is_member(name: str) -> bool:
    """Return whether `$.name` is the path of the member with that name, and nothing else."""
    try:
        return JsonPath("returns", f"$.{name}", lenient=True).steps == [name]
    except DeclarationError:
        return False
