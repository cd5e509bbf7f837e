"""HttpLookup on an executor: sends requests, and maps answers to columns by JSON paths."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pyarrow as pa
from yarl import URL

from jobs.clients.batcher import Batching, BatchingClient, BatchRefused
from jobs.clients.client import CallFailed, DeclaredError, Throttled, Unclear
from jobs.clients.http.answer_body import SHOWN, AnswerTooLarge
from jobs.clients.http.batch_items import ItemRequests, id_text
from jobs.clients.http.http_session import NO_HEADERS, ServiceSession
from jobs.clients.http.pages import PageReader
from jobs.clients.http.refusals import StatusFailed
from jobs.clients.http.responses import Response
from jobs.clients.http.session_client import SessionClient
from jobs.clients.request_counter import counts_of
from jobs.declare.answers.answer_casts import AnswerColumn, cast_all
from jobs.declare.answers.answer_schema import schema_check
from jobs.declare.answers.conditions import Conditions
from jobs.declare.answers.inner_answer import InnerAnswer
from jobs.declare.answers.json_paths import JsonPath
from jobs.declare.answers.usage import UsageReader
from jobs.declare.batch import Batch
from jobs.declare.http_lookup import REPAIR, SCHEMA, UNANSWERED, HttpLookup
from jobs.declare.lookup import Key
from jobs.declare.values.addresses import BECOMES_DOT, leads_elsewhere
from jobs.declare.values.fingerprint import fingerprint
from jobs.declare.values.templates import JsonTemplate, as_text, dumped, filled_path, placeholders
from jobs.wording import one_line

# servers and proxies remove them from a path, and with .. the segment before it
NO_SEGMENT = ("", ".", "..")
# a path without these has none of them, however a server decodes it
MAY_LEAD_ELSEWHERE = re.compile(rf"\.|/(?:/|\?|$)|{BECOMES_DOT.pattern}")
REFUSALS = (400, 413, 422)  # of a whole batch, possibly for a bad item or its size

CUT = "it is cut (cut_when), and a retry would be cut too; allow a longer answer"
ASK_AGAIN = "\n\nYour last answer cannot be used: {}. Answer again."


class HttpClient(SessionClient, BatchingClient):
    def __init__(self, lookup: HttpLookup, share: int) -> None:
        self._lookup = lookup
        self._names = tuple(lookup.keys)
        self._method, self._path = lookup.method, placeholders("request", lookup.path)
        self._keyed = _keyed_segments(self._path)
        self._body = None if lookup.body is None else JsonTemplate("body", lookup.first_body)
        self._repair_body = JsonTemplate("body", lookup.body) if lookup.repair else None
        # the last answer that `misfit` found to fit, with its columns, until they are asked for
        self._judged: tuple[Any, tuple[Any, ...]] | None = None
        self._echo = {
            self._names.index(name): JsonPath("echo", path) for name, path in lookup.echo.items()
        }
        self._misses = Conditions("miss_when", lookup.miss_when)
        self._throttles = Conditions("throttled_when", lookup.throttled_when)
        self._errors = Conditions("error_when", lookup.error_when)
        self._cuts = Conditions("cut_when", lookup.cut_when)
        self._inner = None if lookup.answer is None else InnerAnswer(lookup.answer)
        self._check_schema = None if lookup.schema is None else schema_check(lookup.schema)
        self._columns = lookup.columns
        self._required = [
            place for place, column in enumerate(self._columns) if column.name in lookup.required
        ]
        self._counts = counts_of(lookup.name)
        self._counts.model = lookup.model
        self._picked = [_picked(lookup, column) for column in self._columns]
        self._session = ServiceSession(
            lookup.service,
            share,
            attempt_timeout=lookup.attempt_timeout,
            max_answer_bytes=lookup.max_answer_bytes,
            throttled=self._throttles.statuses,
            errors=self._errors.statuses,
            unanswered={
                status: why
                for status, why in UNANSWERED.items()
                if status not in lookup.answer_when
            },
            in_items=lookup.batch is not None,
            counts=self._counts,
            headers=lookup.headers,
            secrets=[variable.read() for variable in lookup.secrets()],
            usage=UsageReader(lookup.bill) if lookup.bill else None,
        )
        self._of_request = (
            None if lookup.idempotency_header is None else fingerprint(lookup.request_facts())
        )
        self._pages = None
        if lookup.pages is not None:
            self._pages = PageReader(
                lookup.pages, self._session, attempt_timeout=lookup.attempt_timeout,
                repeatable=lookup.repeatable,
            )  # fmt: skip
        self.batching = None if lookup.batch is None else self._batches(lookup.batch, share)

    def _batches(self, batch: Batch, share: int) -> Batching:
        requests = ItemRequests(
            batch,
            self._names,
            misses=self._misses,
            throttles=self._throttles,
            masked=self._session.masked,
        )
        ask = partial(self._ask_together, requests)
        return Batching(ask, max_items=batch.max_items, max_wait=batch.max_wait, max_requests=share)

    async def close(self) -> None:
        await self.close_batching()
        await super().close()

    async def call(self, key: Key, reason: str = "") -> Any | None:
        """Return an attempt's answer; `reason` tells what was wrong with the one before."""
        self._session.call_begins(key)
        if self.batching is not None:
            answer = await self.batching.call(key)
        else:
            try:
                asking = self._ask(key, reason)
            except ValueError as error:  # the request cannot be written
                raise CallFailed(str(error)) from error
            try:
                answer = self._answer(await asking, key)
            except DeclaredError as error:
                raise CallFailed(str(error)) from error
            except ValueError as error:  # no path or condition reads the answer
                raise Unclear(str(error)) from error
        self._session.refuse_doubtful(key)
        return answer

    def _answer(self, response: Response, key: Key) -> Any | None:
        """Return the answer in a response, None for a miss. Raises as `call`."""
        if response.is_miss:
            self._missed(response, key)
            return None
        if self._pages is None:
            self._refuse_throttled(response)
            if self._echo:
                self._refuse_nameless(response, key)
        if self._misses.hold_for(response.content):
            self._missed(response, key)
            return None
        if response.content is None:  # a miss, whose columns are not read
            self._refuse_error(None)
        return response.content

    def _missed(self, response: Response, key: Key) -> None:
        """Handle a miss or an error, which contains no key even with echo."""
        if self._echo and response.connection is not None:
            response.connection.brought([key])

    def _refuse_nameless(self, response: Response, key: Key) -> None:
        """Raise CallFailed for an answer without its declared key (echo).

        A miss or an error needs no key; with another one it is not this key's either.
        """
        is_error = self._errors.hold_for(response.content)
        needs_none = is_error or self._misses.hold_for(response.content)
        for place, path in self._echo.items():
            found = id_text(path.value(response.content))
            sent = key[place]
            if needs_none if found is None else found in (id_text(sent), as_text(sent)):
                continue
            if response.connection is not None:
                response.connection.distrust()
            name = self._names[place]
            if found is None:
                reason = f"the answer does not name its {name} at {self._lookup.echo[name]} (echo)"
                raise Unclear(reason)
            raise CallFailed(f"the answer names another {name} (echo)", passing=True)
        if is_error:
            self._missed(response, key)

    def _ask(self, key: Key, reason: str) -> Awaitable[Response]:
        values = dict(zip(self._names, key, strict=True))
        url, misses = self._url(values), self._misses.statuses
        keys = [] if self._echo else [key]
        if self._pages is not None:
            check = partial(self._check_page, key)
            return self._pages.request(url, keys=keys, misses=misses, check=check)
        body, template = None, self._body
        if template is not None:
            values.setdefault(SCHEMA, self._lookup.schema)  # a key may have this name
            if reason and self._repair_body is not None:
                template, values[REPAIR] = self._repair_body, ASK_AGAIN.format(reason)
            body = dumped(template.filled(values))
        headers = NO_HEADERS if self._of_request is None else self._idempotency(key)
        return self._session.request(
            self._method, url, body=body, misses=misses, keys=keys, headers=headers
        )

    def _idempotency(self, key: Key) -> Mapping[str, str]:
        """Return the header that names this key's call, equal in every attempt and run."""
        assert self._lookup.idempotency_header is not None
        called = json.dumps([self._of_request, *map(as_text, key)])
        return {self._lookup.idempotency_header: str(uuid5(NAMESPACE_OID, called))}

    def _url(self, values: Mapping[str, Any]) -> URL:
        """Return the URL of a request. Raises ValueError if a key would change the address."""
        path = filled_path(self._path, values)
        if MAY_LEAD_ELSEWHERE.search(path):
            segments = path.partition("?")[0].split("/")
            for place in self._keyed:
                if segments[place] in NO_SEGMENT or leads_elsewhere(segments[place]):
                    raise ValueError(
                        f"a part of the path that a key makes is {segments[place]!r}, which leads "
                        "to another address; nothing was sent"
                    )
        return URL(self._session.base_url + path, encoded=True)

    async def _ask_together(self, requests: ItemRequests, keys: Sequence[Key]) -> Sequence[Any]:
        """Return an outcome per key.

        Raises:
            BatchRefused: A single key may be the reason for a refusal, and the others may be sent
                again.
        """
        items = requests.items(keys)
        if not items.asked:
            return items.of_key
        unnamed = [] if requests.answers_name_keys else keys
        try:
            response = await self._session.request(
                self._method,
                self._url({}),
                body=requests.body(items),
                items=len(items.asked),
                keys=unnamed,
            )
        except (AnswerTooLarge, StatusFailed) as error:
            is_refusal = isinstance(error, AnswerTooLarge) or error.status in REFUSALS
            if not is_refusal or not self._lookup.idempotent:
                raise
            raise BatchRefused(str(error)) from error
        try:
            outcomes = requests.outcomes(items, response)
        except Throttled:
            self._counts.not_now()
            raise
        except ValueError as error:
            raise Unclear(str(error)) from error
        if requests.answers_name_keys and response.connection is not None:  # a miss names no key
            response.connection.brought(
                [key for key, outcome in zip(keys, outcomes, strict=True) if outcome is None]
            )
        return outcomes

    def _refuse_throttled(self, response: Response) -> None:
        if self._throttles.hold_for(response.content):
            self._counts.not_now()
            raise Throttled("throttled, by the answer", response.retry_after)

    def _check_page(self, key: Key, response: Response, *, is_first: bool) -> None:
        self._refuse_throttled(response)
        pages, page = self._lookup.pages, response.content
        alone = [page] if pages is not None and pages.items is None else page  # as an answer
        if not (is_first and self._misses.hold_for(alone)):
            self._refuse_error(page)
        if not is_first and self._cuts.hold_for(page):  # the first is judged in the whole answer
            raise DeclaredError(CUT)
        if self._echo:
            self._refuse_nameless(response, key)

    def _refuse_error(self, answer: Any) -> None:
        """Raise DeclaredError for an answer that matches error_when."""
        if self._errors.hold_for(answer):
            shown = one_line(self._session.masked(json.dumps(answer, default=str)), SHOWN)
            raise DeclaredError(f"it is an error by error_when: {shown}")

    def _inner_answer(self, response: Any) -> Any:
        """Return the answer inside a response. Raises ValueError if it is cut or does not fit."""
        if self._cuts.hold_for(response):
            raise ValueError(CUT)
        answer = response if self._inner is None else self._inner.read(response)
        if self._check_schema is not None:
            self._check_schema(answer)
        return answer

    def misfit(self, answer: Any) -> str | None:
        """Return why an answer does not fit, if another one may; None for other answers."""
        try:
            self._judged = answer, self._read_columns(answer)
        except ValueError as error:
            if self._cuts.hold_for(answer) or self._errors.hold_for(answer):
                return None
            return one_line(str(error), SHOWN)
        return None

    def columns(self, answer: Any) -> tuple[Any, ...]:
        judged, self._judged = self._judged, None
        if judged is not None and judged[0] is answer:
            return judged[1]
        return self._read_columns(answer)

    def _read_columns(self, answer: Any) -> tuple[Any, ...]:
        self._refuse_error(answer)
        try:
            answer = self._inner_answer(answer)
        except ValueError as error:
            raise ValueError(self._session.masked(str(error))) from error
        if not isinstance(answer, dict | list):
            raise ValueError(f"expected a JSON object or array, got {type(answer).__name__}")  # noqa: TRY004  # Caller's word
        try:
            values = cast_all(self._columns, [picked(answer) for picked in self._picked])
        except ValueError as error:
            raise ValueError(self._session.masked(str(error))) from error
        for place in self._required:
            if values[place] is None:
                raise DeclaredError(f"{self._columns[place].name} is null, and it is required")
        return values


def _picked(lookup: HttpLookup, column: AnswerColumn) -> Callable[[Any], Any]:
    """Return the function that reads a column: all values of the path for an ARRAY."""
    path = JsonPath(f"paths: {column.name}", lookup.answer_path(column.name), lenient=True)
    is_list = pa.types.is_list(column.arrow_type)
    return path.values if is_list and not path.picks_one else path.value


def _keyed_segments(path: Sequence[tuple[str, str | None]]) -> list[int]:
    marked = "".join(text if name is None else f"{text}\0" for text, name in path)
    return [
        place
        for place, segment in enumerate(marked.partition("?")[0].split("/"))
        if "\0" in segment
    ]
