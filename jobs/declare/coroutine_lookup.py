"""Lookups from users' coroutines, declared with @lookup, and the coroutines' arguments."""

import importlib
import inspect
import json
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass, field, fields
from functools import partial
from types import CodeType, MappingProxyType
from typing import Any, Protocol

from jobs.declare.answers.conditions import Conditions
from jobs.declare.lookup import Lookup
from jobs.declare.services import Service
from jobs.declare.values.fingerprint import WHERE_DECLARED
from jobs.declare.values.prices import reported_units
from jobs.declare.values.type_checks import require_type, require_types
from jobs.errors import DeclarationError

NO_BODY = object()
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Row:
    """The keys of a row as attributes, or row["name"] for a name that is not a valid identifier.

    Args:
        keys: Name of a key -> its value.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[str, Any]) -> None:
        self._keys = keys

    def __getattr__(self, name: str) -> Any:
        if name == "_keys":  # a copy in progress has no _keys yet
            raise AttributeError(name)
        try:
            return self._keys[name]
        except KeyError:
            raise AttributeError(
                f"the lookup has no key {name!r}; it has: {', '.join(self._keys)}"
            ) from None

    def __getitem__(self, name: str) -> Any:
        return self._keys[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self._keys.items())})"


class Http(Protocol):
    """Requests to the lookup's service, with its authentication, limits, gate and certificates."""

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        miss: Collection[int] = (404,),
    ) -> Any:
        """Send a GET request.

        Throttling (429, 503) pauses the whole service and runs the coroutine again, without a
        retry.

        Args:
            path: Path under the service's URL; values go in params, which escapes them.
            params: The query; a list is a parameter that is repeated, a dict is JSON.
            headers: Headers of this request.
            miss: Statuses for which the answer is None.

        Returns:
            The JSON of the answer.

        Raises:
            Exception: The status is 300 or more, the connection dropped, or the answer is too large
                or too late.
        """

    async def post(
        self,
        path: str,
        *,
        json: Any = NO_BODY,
        lines: Iterable[Any] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        miss: Collection[int] = (),
    ) -> Any:
        """Send a POST request, otherwise like `get`.

        Args:
            path: Path under the service's URL.
            json: The body; left out, the request has none.
            lines: In place of json: the body is a line of JSON for each value, sent from a file.
            params: The query; a list is a parameter that is repeated, a dict is JSON.
            headers: Headers of this request.
            miss: Statuses for which the answer is None.

        Returns:
            The JSON of the answer.
        """

    async def put(
        self,
        path: str,
        *,
        json: Any = NO_BODY,
        lines: Iterable[Any] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        miss: Collection[int] = (),
    ) -> Any:
        """Send a PUT request like `post`. An answer without a body is None.

        Args:
            path: Path under the service's URL.
            json: The body; left out, the request has none.
            lines: In place of json: a line of JSON for each value.
            params: The query; a list is a parameter that is repeated, a dict is JSON.
            headers: Headers of this request.
            miss: Statuses for which the answer is None.
        """

    async def delete(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        miss: Collection[int] = (404,),
    ) -> Any:
        """Send a DELETE request like `get`. An answer without a body is None.

        Args:
            path: Path under the service's URL.
            params: The query; a list is a parameter that is repeated, a dict is JSON.
            headers: Headers of this request.
            miss: Statuses for which the answer is None.
        """

    async def upload(
        self,
        path: str,
        *,
        lines: Iterable[Any],
        field: str = "file",
        name: str = "items.jsonl",
        fields: Mapping[str, str] = NO_HEADERS,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Any:
        """Upload a file by a multipart form, otherwise like `post`.

        Args:
            path: Path under the service's URL.
            lines: Values, of which each becomes a line of JSON in the file.
            field: The form's field with the file.
            name: The file's name.
            fields: The other fields of the form.
            headers: Headers of this request.

        Returns:
            The JSON of the answer.
        """

    def lines(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> AsyncIterator[Any]:
        """Send a GET request and yield the JSON of each line of its answer.

        The answer is first read into a temporary file, so its size does not matter, and an
        interrupted answer is an error before its first line. A last line that the service cut off
        is left out.

        Args:
            path: Path under the service's URL.
            params: The query; a list is a parameter that is repeated, a dict is JSON.
            headers: Headers of this request.
        """

    def bill(self, **units: int) -> None:
        """Record the units that the service bills for an answer, whatever the row's outcome.

        Args:
            units: Units as the service names them: bill(tokens=812). Further calls add to them.
        """


Function = Callable[[Row, Http], Awaitable[Mapping[str, Any] | None]]


@dataclass(frozen=True, kw_only=True)
class CoroutineLookup(Lookup):
    """A coroutine called with a row's keys: `async def f(row: Row, http: Http) -> dict | None`.

    A dict is the answer, by the names of `returns`; None is a miss. A transient failure of a
    request (5xx, dropped connection, attempt_timeout) or an OSError runs the coroutine again; any
    other exception or result is an error at once. The service's max_concurrency bounds the running
    coroutines and all their requests. Executors import the coroutine by its name, so its module
    must be importable there.

    Attributes:
        service: The service to call.
        function: The coroutine; @lookup sets it.
        attempt_timeout: Seconds for a request; by default the row's time limit.
        throttled_when: Statuses that mean throttling.
        max_answer_bytes: A larger answer is an error.
        model: The model whose prices hold, where the service's prices differ by model.
        fingerprint: What the coroutine puts into its requests besides the keys, such as
            [PROMPT, MODEL]: a change repeats all calls, like a raised version.
    """

    service: Service
    function: Function
    attempt_timeout: float | None = None
    throttled_when: tuple[int, ...] = (429, 503)
    max_answer_bytes: int = 1 << 20

    model: str | None = field(default=None, metadata=WHERE_DECLARED)  # type: ignore[misc]
    fingerprint: tuple[Any, ...] = field(default=(), metadata=WHERE_DECLARED)

    kind = "coroutine"

    def _check_types(self) -> None:
        require_types(self, leave=["throttled_when"])
        # a condition has its own message
        require_type("throttled_when", self.throttled_when, tuple[Any, ...])

    def _check(self) -> None:
        super()._check()
        self._check_function()
        object.__setattr__(self, "fingerprint", tuple(self.fingerprint))
        try:
            json.dumps(self.fingerprint)
        except (TypeError, ValueError) as error:
            raise DeclarationError(
                "fingerprint: its values must be texts, numbers, lists and dicts, such as [PROMPT, "
                f"MODEL]: {error}."
            ) from error
        statuses: tuple[Any, ...] = tuple(self.throttled_when)
        object.__setattr__(self, "throttled_when", statuses)
        conditions = [status for status in statuses if isinstance(status, str)]
        if conditions:
            raise DeclarationError(
                f"throttled_when: {conditions[0]!r} is not a status. The function itself must read "
                "the answer."
            )
        Conditions("throttled_when", statuses)
        if self.max_answer_bytes < 1:
            raise DeclarationError(
                f"max_answer_bytes is {self.max_answer_bytes}; it must be a whole number, at least "
                "1 (bytes)."
            )

    def _check_function(self) -> None:
        if not inspect.iscoroutinefunction(self.function):
            raise DeclarationError(
                "@lookup must decorate an async def, which waits for the service."
            )
        if len(inspect.signature(self.function).parameters) != 2:
            raise DeclarationError("the function must take two arguments, row and http.")

    @property
    def longest_call(self) -> float | None:
        return self.timeout or self.attempt_timeout  # it may make several requests

    @property
    def service_key(self) -> tuple[str, str]:
        return "http", self.service.name  # an HttpLookup may call the same service

    def request_facts(self) -> dict[str, Any]:
        """Return the facts of a request; the function counts by its name, its body by `version`."""
        facts = super().request_facts() | {
            "service": self.service.request_facts(),
            "function": self.function,
        }
        if self.model is not None:
            facts["model"] = self.model
        return facts | ({"fingerprint": list(self.fingerprint)} if self.fingerprint else {})

    def billed_units(self) -> None:
        return None

    @property
    def trusts(self) -> str | None:
        reported = reported_units(self.prices)
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        if reported and code is not None and not _names(code, "bill"):
            return (
                f"http.bill: its service has a price per {reported[0]}, and its function does not "
                "call http.bill itself; answers that it does not bill count 0 in costs, budgets "
                "and caps"
            )
        if not reported or self.version > 1 or self.fingerprint:
            return None
        return (
            "version: it counts by its name, so that a changed prompt, model or parameter of its "
            "requests repeats no call; declare fingerprint=[PROMPT, MODEL], or raise version at "
            "each change"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name, because pickle finds this object, not the function, under that name."""
        module, name = self.function.__module__, self.function.__qualname__
        if module != "__main__" and _found(sys.modules.get(module), name) is self:
            return declared, (module, name)
        declared_fields = {field.name: getattr(self, field.name) for field in fields(self)}
        # cloudpickle takes the function with its code
        return partial(type(self), **declared_fields), ()


def _names(code: CodeType, name: str) -> bool:
    """Return whether code, or a function in it, has this attribute or variable."""
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return name in code.co_names or any(_names(nested, name) for nested in inner)


def declared(module: str, name: str) -> CoroutineLookup:
    """Return the lookup of that name. Raises DeclarationError if this process cannot find it."""
    try:
        found = _found(importlib.import_module(module), name)
    except ImportError as error:
        raise DeclarationError(
            f"lookup {name}: the executors cannot import {module} ({error}). Install it, or ship "
            "it by --py-files."
        ) from error
    if not isinstance(found, CoroutineLookup):
        raise DeclarationError(
            f"lookup {name}: {module} has no @lookup of that name there; is it another version?"
        )
    return found


def _found(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def lookup(
    *,
    service: Service,
    keys: Mapping[str, str],
    returns: str,
    timeout: float | None,
    name: str | None = None,
    **fields: Any,
) -> Callable[[Function], CoroutineLookup]:
    """Turn the decorated coroutine into a lookup.

    Args:
        service: The service to call.
        keys: Name -> Spark SQL expression over the input's columns.
        returns: Spark DDL of the answer's columns.
        timeout: Seconds per row, over all attempts; None for no limit.
        name: Name of the lookup; by default the coroutine's name.
        fields: Further fields of CoroutineLookup, such as version, retry, cache.

    Returns:
        The decorator, which returns the lookup in place of the coroutine.

    Raises:
        DeclarationError: The declaration is wrong.
    """

    def declare(function: Function) -> CoroutineLookup:
        return CoroutineLookup(
            name=name or function.__name__,
            service=service,
            keys=keys,
            returns=returns,
            timeout=timeout,
            function=function,
            **fields,
        )

    return declare
