"""Writes the declaration of a lookup from an operation of an OpenAPI document."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import quote, urljoin

from jobs.commands.describing.openapi_document import OpenApi, Operation, constant_of
from jobs.errors import DeclarationError
from jobs.wording import did_you_mean

COLUMNS = 12  # of an answer, at most
TYPES = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "string": "STRING"}
FORMATS = {"int32": "INT", "date": "DATE", "date-time": "TIMESTAMP"}
EXAMPLES = {"BIGINT": 1, "INT": 1, "DOUBLE": 1.5, "BOOLEAN": True, "DATE": "2026-11-19",
            "TIMESTAMP": "2026-11-19T00:00:00Z"}  # fmt: skip
NEXT_PAGE = {"next", "next_url", "next_link", "next_page_url", "odata_next_link"}
NEXT_VALUE = {"cursor", "next_cursor", "next_page_token", "next_token"}
PAGE_PARAMETERS = {"cursor", "after", "page_token", "next_token", "starting_after"}


@dataclass(frozen=True)
class Column:
    """A column of an answer: its name, type and path, and whether each answer has it."""

    name: str
    type: str
    path: str
    sure: bool


@dataclass(frozen=True)
class Described:
    """What `init --openapi` writes.

    Attributes:
        name: Name of the lookup, and of the file in `enrichments`.
        code: The declaration.
        variables: Environment variables with their values, "" where only the user knows it.
        row: A row of input, with the examples of the document.
        asks: The request.
        others: Names of the other operations that can be lookups.
    """

    name: str
    code: str
    variables: Mapping[str, str]
    row: Mapping[str, Any]
    asks: str
    others: list[str]


def describe(document: OpenApi, chosen: str | None = None) -> Described:
    """Return the declaration of an operation: of the chosen name, or the one most like a lookup.

    Raises:
        DeclarationError: There is no such operation, or the document is invalid.
    """
    try:
        return _describe(document, chosen)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        if isinstance(error, DeclarationError):
            raise
        raise DeclarationError(
            f"the document is not valid OpenAPI ({type(error).__name__}: {error}). Validate it "
            "first."
        ) from error


def _describe(document: OpenApi, chosen: str | None) -> Described:
    operations = document.operations()
    names = [operation.name for operation in operations]
    if not operations:
        raise DeclarationError("the document has no GET operation that asks by a key for JSON.")
    if chosen is not None and chosen not in names:
        close = did_you_mean(chosen, names)
        raise DeclarationError(
            f"no operation {chosen!r} can be a lookup.{close} There are: {', '.join(names)}."
        )
    operation = operations[0 if chosen is None else names.index(chosen)]
    return _Declaration(document, operation).describe(
        [name for name in names if name != operation.name]
    )


def plain_name(text: str) -> str:
    """Return a name of small letters, digits and _."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")


def quoted(value: str) -> str:
    """Return the code of a text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return json.dumps(value, ensure_ascii=False)


class _Declaration:
    def __init__(self, document: OpenApi, operation: Operation) -> None:
        self.document, self.operation = document, operation
        static = [one for one in operation.path.split("/") if one and "{" not in one]
        name = plain_name(static[-1]) if static else ""
        self.name = name if re.match("[a-z]", name) else "answer"
        service = plain_name(document.title)
        self.service = service if re.match("[a-z]", service) else "service"
        self.prefix = self.service.upper()
        self.keys = {plain_name(one["name"]): one for one in operation.asked_for}
        self.types = {key: self._key_type(one) for key, one in self.keys.items()}
        self.array = self._list_in(operation.answer)
        self.pages = self._pages()
        self.columns = list(islice(self._columns(), COLUMNS))
        if not self.columns:
            raise DeclarationError(
                f"{operation.name}: the document does not name the fields of its answer."
            )

    def describe(self, others: list[str]) -> Described:
        auth, variables = self._auth()
        url = self._absolute(self.document.address)
        row = {key: self._example(one, self.types[key]) for key, one in self.keys.items()}
        return Described(
            self.name,
            "".join(f"{line}\n" for line in self._lines(auth)),
            {f"{self.prefix}_URL": url, **variables},
            row,
            f"GET {self.operation.path}",
            others,
        )

    def _lines(self, auth: str | None) -> Iterator[str]:
        summary = self.operation.declared.get("summary") or self.operation.name
        words = " ".join(str(summary).split()).replace("\\", " ").replace('"', "'").rstrip(".")
        used = ["Enrichment", "Env", "HttpLookup", "Input", "Output", "Service"]
        used += [re.split(r"\W", auth)[0]] if auth else []
        used += ["Pages"] if self.pages else []
        yield f'"""{words[:80]}, from {self.document.title[:40]}."""'
        yield ""
        yield f"from tidegate import {', '.join(sorted(used))}"
        yield ""
        yield f"{self.name} = HttpLookup("
        yield f"    name={quoted(self.name)},"
        yield "    service=Service("
        yield f"        name={quoted(self.service)},"
        yield f"        url=Env({quoted(self.prefix + '_URL')}),"
        yield "        max_concurrency=4,  # calls in flight"
        if auth:
            yield f"        auth={auth},"
        yield "    ),"
        yield f"    request={quoted(self._request())},"
        yield from self._table("keys", {key: key for key in self.keys})
        if headers := self._headers():
            yield from self._table("headers", headers)
        yield "    returns=("
        for column in self.columns:
            comma = ", " if column is not self.columns[-1] else ""
            yield f"        {quoted(f'{column.name} {column.type}{comma}')}"
        yield "    ),"
        paths = {one.name: one.path for one in self.columns if one.path != f"$.{one.name}"}
        if paths:
            yield from self._table("paths", paths)
        if sure := [column.name for column in self.columns if column.sure][:1]:
            yield f"    required=[{quoted(sure[0])}],  # an answer without it is an error"
        if self.array is not None and not self._all_items:
            yield f"    miss_when=[404, {quoted(f'length({self.array}) == 0')}],"
        if self.pages:
            yield f"    pages={self.pages},"
        if echo := self._echo():
            yield from self._table("echo", echo)
        yield "    timeout=10.0,  # s, all attempts and the waits between them"
        yield ")"
        yield f"{self.name}_table = Enrichment("
        yield f"    name={quoted(self.name + '_enriched')},"
        yield "    # a folder per day: date=2026-11-19/*.jsonl; format and schema go with Parquet"
        yield "    input=Input("
        yield f'        path="data/raw/{self.name}",'
        yield '        format="json",'
        yield f"        schema={quoted(', '.join(map(' '.join, self.types.items())))},"
        yield "    ),"
        yield f"    lookups=[{self.name}],"
        yield f'    output=Output(path="data/published/{self.name}"),'
        yield ")"

    def _table(self, field: str, values: Mapping[str, str]) -> Iterator[str]:
        yield f"    {field}={{"
        for name, value in values.items():
            yield f"        {quoted(name)}: {quoted(value)},"
        yield "    },"

    def _request(self) -> str:
        path, query = self.operation.path, []
        for key, one in self.keys.items():
            if one["in"] == "path":
                path = path.replace(f"{{{one['name']}}}", f"{{{key}}}")
            else:
                query.append(f"{one['name']}={{{key}}}")
        query += [
            f"{one['name']}={_sent(constant_of(one))}"
            for one in self.operation.parameters
            if one["in"] == "query" and one.get("required") and constant_of(one) is not None
        ]
        return f"GET {path}{'?' if query else ''}{'&'.join(query)}"

    def _headers(self) -> dict[str, str]:
        headers = [one for one in self.operation.parameters if one["in"] == "header"]
        known = {one["name"]: constant_of(one) or one.get("example") for one in headers}
        return {
            name: str(value)
            for name, value in known.items()
            if value and name.lower() not in ("accept", "authorization", "content-type")
        }

    def _auth(self) -> tuple[str | None, Mapping[str, str]]:
        """Return the code of the first scheme that Tidegate knows, and its secret variables."""
        for scheme in self.document.security(self.operation):
            kind, name = scheme.get("type"), f"{self.prefix}_KEY"
            if kind == "apiKey" and scheme["in"] in ("header", "query"):
                return (
                    f"ApiKey(Env({quoted(name)}), {scheme['in']}={quoted(scheme['name'])})",
                    _unset(name),
                )
            if kind == "http" and scheme["scheme"].lower() == "basic":
                both = [f"{self.prefix}_USER", f"{self.prefix}_PASSWORD"]
                return f"Basic(Env({quoted(both[0])}), Env({quoted(both[1])}))", _unset(*both)
            flow = scheme.get("flows", {}).get("clientCredentials")
            if flow:
                both = [f"{self.prefix}_CLIENT_ID", f"{self.prefix}_CLIENT_SECRET"]
                return (
                    "OAuth2ClientCredentials(\n"
                    f"            token_url=Env({quoted(self.prefix + '_TOKEN_URL')}),\n"
                    f"            client_id=Env({quoted(both[0])}),\n"
                    f"            client_secret=Env({quoted(both[1])}),\n"
                    "        )"
                ), {f"{self.prefix}_TOKEN_URL": self._absolute(flow["tokenUrl"]), **_unset(*both)}
            if kind in ("http", "oauth2", "openIdConnect"):
                return f"Bearer(Env({quoted(self.prefix + '_TOKEN')}))", _unset(
                    f"{self.prefix}_TOKEN"
                )
        return None, {}

    def _absolute(self, address: str) -> str:
        """Return an address of the document; a relative one begins at the first server's."""
        given = urljoin(f"{self.document.address}/", quoted(address)[1:-1])
        return given if given.startswith("http") else f"http://localhost{given}"

    @property
    def _all_items(self) -> bool:
        """Whether the columns are lists, over all items of an answer; else of the first one."""
        return self.pages is not None or any(one["in"] == "path" for one in self.keys.values())

    def _list_in(self, answer: Mapping[str, Any]) -> str | None:
        """Return the path of the list of objects that is the answer, if it is one."""
        if _type(answer) == "array":
            return "$"
        lists = [
            name
            for name, value in answer.get("properties", {}).items()
            if _type(known := self.document.merged(value)) == "array"
            and "properties" in self.document.merged(known.get("items", {}))
        ]
        wrapped = len(answer.get("properties", {})) <= 8 and "id" not in answer.get(
            "properties", {}
        )
        return _child("$", lists[0]) if len(lists) == 1 and wrapped else None

    def _items(self) -> Mapping[str, Any]:
        if self.array == "$":
            return self.document.merged(self.operation.answer.get("items", {}))
        for name, value in self.operation.answer["properties"].items():
            if _child("$", name) == self.array:
                return self.document.merged(self.document.merged(value).get("items", {}))
        raise AssertionError(self.array)

    def _pages(self) -> str | None:
        """Return the code of the pages, where an answer has a list and what leads to the next."""
        if self.array in (None, "$"):
            return None
        parameters = {plain_name(one["name"]): one["name"] for one in self.operation.parameters}
        taking = next(
            (parameters[name] for name in sorted(PAGE_PARAMETERS & set(parameters))), None
        )
        for name, path in self._scalars(self.operation.answer, "$", 2):
            last = name.removeprefix("links_").removeprefix("meta_").removeprefix("pagination_")
            if last in NEXT_PAGE:
                return f"Pages(next={quoted(path)}, items={quoted(self.array)}, max_pages=20)"
            if last in NEXT_VALUE and taking:
                return (
                    f"Pages(next={quoted(path)}, parameter={quoted(taking)}, "
                    f"items={quoted(self.array)}, max_pages=20)"
                )
        return None

    def _scalars(self, schema: Mapping[str, Any], at: str, depth: int) -> Iterator[tuple[str, str]]:
        for column in self._fields(schema, at, "", depth, sure=True):
            yield column.name, column.path

    def _columns(self) -> Iterator[Column]:
        taken = set(self.types) | {f"{self.name}_status", f"{self.name}_answered_at", "date"}
        if self.array is None:
            found = self._fields(self.operation.answer, "$", "", 2, sure=True)
        else:
            at = f"{self.array}[{'*' if self._all_items else '0'}]"
            found = self._fields(self._items(), at, "", 2, sure=not self._all_items)
        repeated = self._echo().values()
        for column in found:
            if column.path in repeated:
                continue
            name = column.name if column.name not in taken else f"{self.name}_{column.name}"
            if name not in taken:
                taken.add(name)
                kind = f"ARRAY<{column.type}>" if self._all_items and self.array else column.type
                yield Column(name, kind, column.path, column.sure)

    def _fields(
        self, schema: Mapping[str, Any], at: str, prefix: str, depth: int, *, sure: bool
    ) -> Iterator[Column]:
        for name, value in schema.get("properties", {}).items():
            known, path = self.document.merged(value), _child(at, name)
            column = prefix + (plain_name(name) or "field")
            column = column if column[0].isalpha() else f"_{column}"
            there = sure and name in schema.get("required", ()) and not _may_be_null(known)
            if "properties" in known and depth:
                yield from self._fields(known, path, f"{column}_", depth - 1, sure=there)
            elif (kind := _type(known)) in TYPES:
                yield Column(column, _column_type(known, kind), path, there)

    def _key_type(self, parameter: Mapping[str, Any]) -> str:
        schema = self.document.merged(parameter.get("schema", {}))
        return {"BIGINT": "BIGINT", "INT": "BIGINT", "DOUBLE": "DOUBLE"}.get(
            _column_type(schema, _type(schema)), "STRING"
        )

    def _echo(self) -> dict[str, str]:
        """Return where an answer repeats its key: as `id`, or under the key's name."""
        properties = self.operation.answer.get("properties", {}) if self.array is None else {}
        echo: dict[str, str] = {}
        for key, one in self.keys.items():
            for name, value in properties.items():
                named = key.endswith("_id") or f"{key}s" == self.name
                own = plain_name(name) == key or (name == "id" and named)
                known = self.document.merged(value)
                if (
                    own
                    and one["in"] == "path"
                    and _type(known) == _type(self.document.merged(one.get("schema", {})))
                ):
                    echo.setdefault(key, _child("$", name))
        return echo if len(self.keys) == 1 else {}

    def _example(self, parameter: Mapping[str, Any], kind: str) -> Any:
        schema = self.document.merged(parameter.get("schema", {}))
        examples = parameter.get("examples")
        named = next(iter(examples.values()), None) if isinstance(examples, dict) else None
        given = [
            parameter.get("example"),
            self.document.resolve(named).get("value") if named else None,
            schema.get("example"),
            *schema.get("examples", ()),
            *schema.get("enum", ()),
            EXAMPLES.get(_column_type(schema, _type(schema)), parameter["name"]),
        ]
        value = next(one for one in given if one is not None)
        return str(value) if kind == "STRING" else value


def _sent(value: Any) -> str:
    """Return a value of a query, escaped."""
    if not isinstance(value, str | int | float):
        raise TypeError(f"{value!r} is not a value of a query")
    return quote(str(value).lower() if isinstance(value, bool) else str(value), safe="")


def _unset(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "")


def _child(path: str, name: str) -> str:
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
    return f"{path}.{name}" if plain else f"{path}[{quoted(name)}]"


def _type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type", "")
    return next((one for one in kind if one != "null"), "") if isinstance(kind, list) else kind


def _may_be_null(schema: Mapping[str, Any]) -> bool:
    choices = [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
    nulls = [one for one in choices if one.get("type") == "null"]
    return bool(schema.get("nullable") or "null" in schema.get("type", "") or nulls)


def _column_type(schema: Mapping[str, Any], kind: str) -> str:
    return FORMATS.get(schema.get("format", ""), TYPES.get(kind, "STRING"))
