"""Writes the declaration of a lookup from an operation of an OpenAPI document."""

import json
import keyword
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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
NEXT_PAGE = {"next", "next_page", "next_url", "next_link", "next_page_url", "odata_next_link"}
NEXT_VALUE = {"cursor", "next_cursor", "next_page_token", "next_token"}
PAGE_PARAMETERS = {"cursor", "after", "page_token", "next_token", "starting_after"}
MORE_PAGES = {"has_more", "has_next", "has_next_page"}
COUNT_OF_PAGES = {"total_pages", "last_page", "page_count", "num_pages"}
PLACE_PARAMETERS = {"page", "page_number", "page_no", "pagenum", "offset", "skip", "start"}
# a list is the answer, and not a field of it, if each other name has only these words
ENVELOPE = frozenset(
    re.findall(
        r"\w+",
        "context count current cursor entries error etag first has href info is items kind last "
        "limit link links message meta metadata more next no num object odata of offset ok page "
        "pages pagination paging per prev previous records response results rows self size skip "
        "start status success token total uri url ",
    )
)


@dataclass(frozen=True)
class Column:
    """A column of an answer: its name, type ("" if it has none here) and path.

    sure: Whether each answer has it.
    """

    name: str
    type: str
    path: str
    sure: bool
    schema: Mapping[str, Any]


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
    refused: DeclarationError | None = None
    for operation in operations:
        if chosen in (None, operation.name):
            try:
                return _Declaration(document, operation).describe(
                    [name for name in names if name != operation.name]
                )
            except DeclarationError as error:
                refused = refused or error
    assert refused is not None
    raise refused


def plain_name(text: str) -> str:
    """Return a name of small letters, digits and _."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")


def quoted(value: str) -> str:
    """Return the code of a text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    value.encode()  # half a character cannot be in a file
    return json.dumps(value, ensure_ascii=False)


class _Declaration:
    def __init__(self, document: OpenApi, operation: Operation) -> None:
        self.document, self.operation = document, operation
        static = [one for one in operation.path.split("/") if one and "{" not in one]
        name = plain_name(static[-1]) if static else ""
        name = name if re.match("[a-z]", name) else "answer"
        self.name = f"{name}_lookup" if keyword.iskeyword(name) else name
        service = plain_name(document.title)
        self.service = service if re.match("[a-z]", service) else "service"
        self.prefix = self.service.upper()
        self.keys = self._named_keys()
        self.types = {key: self._key_type(one) for key, one in self.keys.items()}
        self.array = self._list_in(operation.answer)
        self.pages = self._pages()
        self.left_out: list[str] = []
        self.columns = self._columns()
        if not self.columns:
            raise DeclarationError(
                f"{operation.name}: the document does not name the fields of its answer."
            )

    def _named_keys(self) -> dict[str, Mapping[str, Any]]:
        keys: dict[str, Mapping[str, Any]] = {}
        for one in self.operation.asked_for:
            name = plain_name(one["name"])
            if not name[:1].isalpha() or name == "date":  # the folders of the days name date
                name = f"{self.name}_{name or 'key'}"
            if name in keys:
                raise DeclarationError(
                    f"{self.operation.name}: two of its parameters would be the column {name!r}."
                )
            keys[name] = one
        return keys

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
        used = ["Enrichment", "Env", "HttpLookup", "Input", "Output", "Service"]
        used += [re.split(r"\W", auth)[0]] if auth else []
        used += ["Pages"] if self.pages else []
        yield f'"""{_prose(summary)[:80]}, from {_prose(self.document.title)[:40]}."""'
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
        yield from self._answer_lines()
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

    def _answer_lines(self) -> Iterator[str]:
        yield "    returns=("
        for column in self.columns:
            comma = ", " if column is not self.columns[-1] else ""
            text = f"{column.name} {column.type}{comma}"
            for piece in filter(None, re.split("(?<=, )|(?<=STRUCT<)", text)):
                yield f"        {quoted(piece)}"
        yield "    ),"
        if self.left_out:
            text = f"also in an answer: {', '.join(map(quoted, self.left_out))}"
            yield from (f"    # {line}" for line in textwrap.wrap(text, 94))
        paths = {one.name: one.path for one in self.columns if one.path != f"$.{one.name}"}
        if paths:
            yield from self._table("paths", paths)
        if sure := [column.name for column in self.columns if column.sure][:1]:
            yield f"    required=[{quoted(sure[0])}],  # an answer without it is an error"
        if self.array is not None and not self._all_items:
            yield f"    miss_when=[404, {quoted(f'length({self.array}) == 0')}],"
        if self.pages:
            yield f"    pages={self.pages},"
        if more := self._more():
            yield "    # only the first page is asked; an answer that has more of them is an error"
            yield "    error_when=["
            yield from (f"        {quoted(condition)}," for condition in more)
            yield "    ],"
        if echo := self._echo():
            yield from self._table("echo", echo)

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
                query.append(f"{_name_in_query(one)}={{{key}}}")
        query += [
            f"{_name_in_query(one)}={_sent(constant_of(one))}"
            for one in self.operation.parameters
            if one["in"] == "query" and one.get("required") and constant_of(one) is not None
        ]
        return f"GET {path}{'?' if query else ''}{'&'.join(query)}"

    def _headers(self) -> dict[str, str]:
        needed = [
            one
            for one in self.operation.parameters
            if one["in"] == "header" and one.get("required")
        ]
        known = {
            one["name"]: one.get("example") if (value := constant_of(one)) is None else value
            for one in needed
        }
        return {
            name: _text(value)
            for name, value in known.items()
            if value is not None and name.lower() not in ("accept", "authorization", "content-type")
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
        """Whether the only column is the whole list; else the columns are of its first item."""
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
        others = {name for name in answer.get("properties", {}) if name not in lists}
        wraps = all(ENVELOPE.issuperset(plain_name(name).split("_")) for name in others)
        return _child("$", lists[0]) if len(lists) == 1 and wraps else None

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
        for name, column in self._paging():
            path = column.path
            page = "page" if _type(column.schema) == "integer" else None
            parameter = parameters.get(page) if page else taking if name in NEXT_VALUE else None
            if parameter and name in NEXT_PAGE | NEXT_VALUE:
                return (
                    f"Pages(next={quoted(path)}, parameter={quoted(parameter)}, "
                    f"items={quoted(self.array)}, max_pages=20)"
                )
            if name in NEXT_PAGE and _is_address(name, column.schema, set(parameters)):
                return f"Pages(next={quoted(path)}, items={quoted(self.array)}, max_pages=20)"
        return None

    def _paging(self) -> Iterator[tuple[str, Column]]:
        """Yield the fields beside the list, by their names without those of their groups."""
        for column in self._fields(self.operation.answer, "$", "", 2, sure=True):
            if column.type:
                name = re.sub("^((links|meta|metadata|pagination|paging|page_info)_)+", "",
                              column.name).removesuffix("_href")  # fmt: skip
                yield name, column

    def _more(self) -> list[str]:
        """Return the conditions under which a list has pages that are not asked.

        Raises:
            DeclarationError: An answer does not tell.
        """
        if self.array is None or self.pages or not self._all_items:
            return []
        parameters = {plain_name(one["name"]) for one in self.operation.parameters}
        places = sorted(parameters & (PLACE_PARAMETERS | PAGE_PARAMETERS))
        found = []
        for name, column in self._paging() if self.array != "$" else ():
            path, kind = column.path, _type(column.schema)
            if name in MORE_PAGES and kind == "boolean":
                found.append(f"{path} == true")
            elif kind == "integer" and (name in COUNT_OF_PAGES or name.endswith("_total_pages")):
                found.append(f"{path} > 1")
            elif name in NEXT_PAGE | NEXT_VALUE:
                found.append(f"{path} && {path} != null && {path} != '' && {path} != false")
            elif places and kind == "integer" and name in ("total", "total_count", "total_results"):
                found.append(f"length({self.array}) < {path}")
        if places and not found:
            raise DeclarationError(
                f"{self.operation.name}: its list comes in pages ({places[0]}), and nothing known "
                "in an answer tells whether there are more. Choose another with --operation."
            )
        return found

    def _columns(self) -> list[Column]:
        taken = set(self.types) | {f"{self.name}_status", f"{self.name}_answered_at", "date"}
        found: Iterable[Column]
        if self.array is None:
            found = self._fields(self.operation.answer, "$", "", 2, sure=True)
        elif self._all_items:
            found = self._whole_list(self.array)
        else:
            found = self._fields(self._items(), f"{self.array}[0]", "", 2, sure=True)
        repeated = self._echo().values()
        columns: list[Column] = []
        for column in found:
            if column.path in repeated:
                continue
            name = column.name if column.name not in taken else f"{self.name}_{column.name}"
            if name in taken or not column.type or len(columns) == COLUMNS:
                self.left_out.append(column.name)
                continue
            taken.add(name)
            columns.append(replace(column, name=name))
        return columns

    def _whole_list(self, path: str) -> Iterator[Column]:
        """Yield the column of all items; a field that an item lacks is null in its STRUCT."""
        kind, given = self._struct(self._items(), 2), self.operation.answer.get("required", ())
        named = [name for name in self.operation.answer.get("properties", {}) if
                 _child("$", name) == path]  # fmt: skip
        name = plain_name(named[0]) if named else "items"
        there = path == "$" or named[0] in given
        if kind:
            yield Column(name if name[:1].isalpha() else "items", f"ARRAY<{kind}>", path, there, {})

    def _struct(self, schema: Mapping[str, Any], depth: int) -> str:
        """Return the type of an object; its fields without a type are left out."""
        fields: dict[str, str] = {}
        for name, value in schema.get("properties", {}).items():
            known = self.document.merged(value)
            plain = _type(known)
            kind = _column_type(known, plain) if plain in TYPES else ""
            if "properties" in known and depth:
                kind = self._struct(known, depth - 1)
            same = name.lower() in map(str.lower, fields)
            if not kind or not name or "`" in name or same or len(fields) == COLUMNS:
                self.left_out.append(name)
                continue
            fields[name] = kind
        inner = ", ".join(
            f"{name if re.fullmatch('[A-Za-z_][A-Za-z0-9_]*', name) else f'`{name}`'}: {kind}"
            for name, kind in fields.items()
        )
        return f"STRUCT<{inner}>" if fields else ""

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
            else:
                plain = _type(known)
                kind = _column_type(known, plain) if plain in TYPES else ""
                yield Column(column, kind, path, there, known)

    def _key_type(self, parameter: Mapping[str, Any]) -> str:
        schema = self.document.merged(parameter.get("schema", {}))
        return {"BIGINT": "BIGINT", "INT": "BIGINT", "DOUBLE": "DOUBLE"}.get(
            _column_type(schema, _type(schema)), "STRING"
        )

    def _echo(self) -> dict[str, str]:
        """Return where an answer repeats its key: as `id`, or under the key's name."""
        properties = self.operation.answer.get("properties", {}) if self.array is None else {}
        if len(self.keys) != 1:
            return {}
        ((key, one),) = self.keys.items()
        # `id` is the asked object's, unless the path goes on to another
        is_last = self.operation.path.rstrip("/").endswith(f"{{{one['name']}}}")
        named = [name for name in properties if plain_name(name) == key and key != "id"]
        if is_last and (key == "id" or key.endswith("_id") or f"{key}s" == self.name):
            named += ["id"] if "id" in properties else []
        asked = _type(self.document.merged(one.get("schema", {})))
        for name in named if one["in"] == "path" else ():
            if _type(self.document.merged(properties[name])) == asked:
                return {key: _child("$", name)}
        return {}

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
        if kind == "STRING":
            return _text(value)
        try:
            return int(value) if kind == "BIGINT" else float(value)
        except (TypeError, ValueError):
            return EXAMPLES[kind]


def _sent(value: Any) -> str:
    """Return a value of a query, escaped."""
    if not isinstance(value, str | int | float):
        raise TypeError(f"{value!r} is not a value of a query")
    return quote(_text(value), safe="")


def _name_in_query(parameter: Mapping[str, Any]) -> str:
    return quote(parameter["name"], safe="[]$:,")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _prose(text: Any) -> str:
    """Return a text of the document for a docstring, without what could end or escape it."""
    return " ".join(re.sub(r"[^\w.,;:(){}'/&+-]+", " ", str(text)).split()).rstrip(".")


def _is_address(name: str, schema: Mapping[str, Any], parameters: set[str]) -> bool:
    """Whether a `next` is an address, and not a value for one of the parameters."""
    example = str(schema.get("example") or next(iter(schema.get("examples", ())), ""))
    return _type(schema) == "string" and (
        name not in ("next", "next_page")
        or schema.get("format", "").startswith("ur")
        or example.startswith(("http", "/", "?"))
        or not parameters & (PAGE_PARAMETERS | PLACE_PARAMETERS)
    )


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
