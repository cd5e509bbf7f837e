"""Writes the declaration of a lookup from an operation of an OpenAPI document."""

import keyword
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.commands.describing.openapi_answer import Answer
from jobs.commands.describing.openapi_auth import absolute, auth_of
from jobs.commands.describing.openapi_document import OpenApi, Operation, find_constant
from jobs.commands.describing.openapi_schemas import key_type
from jobs.commands.describing.openapi_texts import (
    as_prose,
    as_text,
    in_ddl,
    in_query,
    in_template,
    is_word_of_sql,
    name_in_query,
    plain_name,
    quoted,
)
from jobs.errors import DeclarationError
from jobs.wording import did_you_mean

# programs that read variables of the environment by this prefix
READ_BY_OTHERS = {
    "AIRFLOW", "AWS", "AZURE", "DAGSTER", "GCP", "GOOGLE", "HTTP", "HTTPS", "JAVA", "PIP",
    "PYICEBERG", "PYSPARK", "PYTHON", "SPARK", "TIDEGATE",
}  # fmt: skip
AS_WHOLE = "the document describes no pages: its list is read as complete"
EXAMPLES = {"BIGINT": 1, "INT": 1, "DOUBLE": 1.5, "BOOLEAN": True, "DATE": "2026-11-19",
            "TIMESTAMP": "2026-11-19T00:00:00Z"}  # fmt: skip


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
        remarks: Sentences on what the document leaves open.
    """

    name: str
    code: str
    variables: Mapping[str, str]
    row: Mapping[str, Any]
    asks: str
    others: list[str]
    remarks: list[str]


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
    if chosen is None and operations[0].method == "POST":
        raise DeclarationError(
            "the document has no GET operation that asks by a key for JSON. A POST may change what "
            f"it asks; choose one that only reads with --operation: {', '.join(names)}."
        )
    if chosen is not None and chosen not in names:
        close = did_you_mean(chosen, names)
        raise DeclarationError(
            f"no operation {chosen!r} can be a lookup.{close} There are: {', '.join(names)}."
        )
    refused: DeclarationError | None = None
    for operation in operations:
        if chosen == operation.name or (chosen is None and operation.method == "GET"):
            try:
                return _Declaration(document, operation).describe(
                    [name for name in names if name != operation.name]
                )
            except DeclarationError as error:
                refused = refused or error
    assert refused is not None
    raise refused


class _Declaration:
    def __init__(self, document: OpenApi, operation: Operation) -> None:
        self.document, self.operation = document, operation
        static = [part for part in operation.path.split("/") if part and "{" not in part]
        name = plain_name(static[-1]) if static else ""
        name = name if re.match("[a-z]", name) else "answer"
        self.name = f"{name}_lookup" if keyword.iskeyword(name) else name
        service = plain_name(document.title)
        self.service = service if re.match("[a-z]", service) else "service"
        self.prefix = self.service.upper()
        if self.prefix.partition("_")[0] in READ_BY_OTHERS:
            self.prefix = f"SERVICE_{self.prefix}"
        self.keys = self._named_keys()
        self.types = {key: self._key_type(parameter) for key, parameter in self.keys.items()}
        self.answer = Answer(document, operation, self.name, self.keys)
        if not self.answer.columns:
            raise DeclarationError(
                f"{operation.name}: the document does not name the fields of its answer. Add their "
                "schema, or choose another operation with --operation."
            )

    def _named_keys(self) -> dict[str, Mapping[str, Any]]:
        keys: dict[str, Mapping[str, Any]] = {}
        for parameter in self.operation.asked_for:
            name = plain_name(parameter["name"])
            # the folders of the days name date
            if not name[:1].isalpha() or name == "date" or is_word_of_sql(name):
                name = f"{self.name}_{name or 'key'}"
            if name in keys:
                raise DeclarationError(
                    f"{self.operation.name}: two of its parameters would be the column {name!r}. "
                    "Rename one in the document, or choose another operation with --operation."
                )
            keys[name] = parameter
        return keys

    def describe(self, others: list[str]) -> Described:
        auth, variables = auth_of(self.document, self.operation, self.prefix)
        url = absolute(self.document, self.document.address)
        row = {
            key: self._example(parameter, self.types[key]) for key, parameter in self.keys.items()
        }
        return Described(
            self.name,
            "".join(f"{line}\n" for line in self._lines(auth)),
            {f"{self.prefix}_URL": url, **variables},
            row,
            f"{self.operation.method} {self.operation.path}",
            others,
            self._remarks(auth),
        )

    def _lines(self, auth: str | None) -> Iterator[str]:
        summary = self.operation.declared.get("summary") or self.operation.name
        used = ["Enrichment", "Env", "HttpLookup", "Input", "Output", "Service"]
        used += [re.split(r"\W", auth)[0]] if auth else []
        used += ["Pages"] if self.answer.pages else []
        yield f'"""{as_prose(summary)[:80]}, from {as_prose(self.document.title)[:40]}."""'
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
        if body := self._body():
            yield "    body={"
            yield from (f"        {name}: {code}," for name, code in body.items())
            yield "    },"
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
        for column in self.answer.columns:
            comma = ", " if column is not self.answer.columns[-1] else ""
            text = f"{in_ddl(column.name)} {column.type}{comma}"
            for piece in filter(None, re.split("(?<=, )|(?<=STRUCT<)", text)):
                yield f"        {quoted(piece)}"
        yield "    ),"
        if self.answer.left_out:
            text = f"also in an answer: {', '.join(map(quoted, self.answer.left_out))}"
            yield from (f"    # {line}" for line in textwrap.wrap(text, 94))
        paths = {
            column.name: column.path
            for column in self.answer.columns
            if column.path != f"$.{column.name}"
        }
        if paths:
            yield from self._table("paths", paths)
        if sure := [column.name for column in self.answer.columns if column.sure][:1]:
            yield f"    required=[{quoted(sure[0])}],  # an answer without it is an error"
        if self.answer.array is not None and not self.answer.all_items:
            yield f"    miss_when=[404, {quoted(f'length({self.answer.array}) == 0')}],"
        yield from self._page_lines()
        if echo := self.answer.echo():
            yield from self._table("echo", echo)

    def _page_lines(self) -> Iterator[str]:
        if self.answer.pages:
            yield "    pages=Pages("
            yield from (f"        {name}={code}," for name, code in self.answer.pages.items())
            yield "    ),"
        if more := self.answer.more():
            yield "    # only the first page is asked; an answer that has more of them is an error"
            yield "    error_when=["
            yield from (f"        {quoted(condition)}," for condition in more)
            yield "    ],"
        elif self.answer.is_taken_as_whole:
            yield f"    # {AS_WHOLE}"

    def _table(self, field: str, values: Mapping[str, str]) -> Iterator[str]:
        yield f"    {field}={{"
        for name, value in values.items():
            yield f"        {quoted(name)}: {quoted(value)},"
        yield "    },"

    def _request(self) -> str:
        path, query = self.operation.path, []
        for key, parameter in self.keys.items():
            if parameter["in"] == "path":
                path = path.replace(f"{{{parameter['name']}}}", f"{{{key}}}")
            elif parameter["in"] == "query":
                query.append(f"{name_in_query(parameter)}={{{key}}}")
        query += [
            f"{name_in_query(parameter)}={in_query(find_constant(parameter))}"
            for parameter in self.operation.parameters
            if parameter["in"] == "query"
            and parameter.get("required")
            and find_constant(parameter) is not None
        ]
        return f"{self.operation.method} {path}{'?' if query else ''}{'&'.join(query)}"

    def _body(self) -> dict[str, str]:
        """Return the body's fields as code: its keys, and those that are the same for each."""
        of_keys = {
            parameter["name"]: key
            for key, parameter in self.keys.items()
            if parameter["in"] == "body"
        }
        fields = {}
        for parameter in self.operation.parameters:
            if parameter["in"] == "body" and (
                parameter["name"] in of_keys or parameter["required"]
            ):
                name = parameter["name"]
                value = f"{{{of_keys[name]}}}" if name in of_keys else find_constant(parameter)
                code = quoted(value) if name in of_keys else in_template(value)
                fields[in_template(name)] = code
        return fields

    def _headers(self) -> dict[str, str]:
        return {name: as_text(value) for name, value in self._needed().items() if value is not None}

    def _needed(self) -> dict[str, Any]:
        """Return the required headers with their values, None for one that only the user knows."""
        needed = {
            parameter["name"]: parameter.get("example")
            if (value := find_constant(parameter)) is None
            else value
            for parameter in self.operation.parameters
            if parameter["in"] == "header" and parameter.get("required")
        }
        return {
            name: value
            for name, value in needed.items()
            if name.lower() not in ("accept", "authorization", "content-type")
        }

    def _remarks(self, auth: str | None) -> list[str]:
        whole = [f"{AS_WHOLE[0].upper()}{AS_WHOLE[1:]}."] if self.answer.is_taken_as_whole else []
        unknown = [
            name
            for name, value in self._needed().items()
            if value is None and quoted(name).lower() not in (auth or "").lower()
        ]
        return whole + [
            f"The service requires the header {name}, and the document gives no value for it: "
            "write it into headers=."
            for name in unknown
        ]

    def _key_type(self, parameter: Mapping[str, Any]) -> str:
        schema = self.document.merged(parameter.get("schema", {}))
        kinds = {"BIGINT": "BIGINT", "INT": "BIGINT", "DOUBLE": "DOUBLE"}
        return kinds.get(key_type(schema), "STRING")

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
            EXAMPLES.get(key_type(schema), parameter["name"]),
        ]
        value = next(example for example in given if example is not None)
        if kind == "STRING":
            return as_text(value)
        try:
            return int(value) if kind == "BIGINT" else float(value)
        except (TypeError, ValueError):
            return EXAMPLES[kind]
