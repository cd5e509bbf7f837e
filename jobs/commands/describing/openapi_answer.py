"""Reads from an OpenAPI operation what its answer gives: columns, list, pages, the repeated key."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jobs.commands.describing.openapi_document import OpenApi, Operation
from jobs.commands.describing.openapi_schemas import child, column_type, may_be_null, schema_type
from jobs.commands.describing.openapi_texts import in_ddl, plain_name, quoted
from jobs.errors import DeclarationError

COLUMNS = 12  # of an answer, at most
NEXT_PAGE = {"next", "next_page", "next_url", "next_link", "next_page_url", "odata_next_link"}
NEXT_VALUE = {"cursor", "next_cursor", "next_page_token", "next_token"}
# the last item's id, or last_id, for one of them leads on while has_more is true
AFTER = ("starting_after", "after", "after_id")
PAGE_PARAMETERS = {"after_id", "cursor", "after", "page_token", "next_token", "starting_after"}
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
    """A column of an answer.

    Attributes:
        name: Its name.
        type: Its type in Spark's DDL; empty if DDL has no type for it.
        path: Its path in the answer.
        sure: Whether each answer has it.
        schema: Its schema in the description.
    """

    name: str
    type: str
    path: str
    sure: bool
    schema: Mapping[str, Any]


class Answer:
    """What an operation answers, for a lookup with these keys.

    Attributes:
        array: The path of the list that is the answer; None for an object.
        pages: The fields of its `Pages`, as code; None without.
        columns: The columns of the lookup.
        left_out: Names of fields that no column has.
    """

    def __init__(
        self, document: OpenApi, operation: Operation, name: str, keys: Mapping[str, Any]
    ) -> None:
        """Read the answer of an operation; `keys` has the parameter of each key."""
        self.document, self.operation, self.name, self.keys = document, operation, name, keys
        self.array = self._list_in(operation.answer)
        self.pages = self._pages()
        self.left_out: list[str] = []
        self.columns = self._columns()

    @property
    def all_items(self) -> bool:
        """Whether the only column is the whole list; else the columns are of its first item."""
        return self.pages is not None or self._is_below_a_key

    @property
    def _is_below_a_key(self) -> bool:
        return any(key["in"] == "path" for key in self.keys.values())

    def more(self) -> list[str]:
        """Return the conditions under which a list has pages that are not asked.

        Raises:
            DeclarationError: An answer does not tell.
        """
        if self.array is None or self.pages or not self.all_items:
            return []
        parameters = {plain_name(parameter["name"]) for parameter in self.operation.parameters}
        places = sorted(parameters & (PLACE_PARAMETERS | PAGE_PARAMETERS))
        found = []
        for name, column in self._paging() if self.array != "$" else ():
            path, kind = column.path, schema_type(column.schema)
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

    @property
    def is_taken_as_whole(self) -> bool:
        """Whether the answer is a list of which the document does not say that it has pages."""
        return self.array is not None and self.all_items and not self.pages and not self.more()

    def echo(self) -> dict[str, str]:
        """Return where an answer repeats its key: as `id`, or under the key's name."""
        properties = self.operation.answer.get("properties", {}) if self.array is None else {}
        if len(self.keys) != 1:
            return {}
        ((key, parameter),) = self.keys.items()
        # `id` is the asked object's, unless the path goes on to another
        is_last = self.operation.path.rstrip("/").endswith(f"{{{parameter['name']}}}")
        named = [name for name in properties if plain_name(name) == key and key != "id"]
        if is_last and (key == "id" or key.endswith("_id") or f"{key}s" == self.name):
            named += ["id"] if "id" in properties else []
        asked = schema_type(self.document.merged(parameter.get("schema", {})))
        for name in named if parameter["in"] == "path" else ():
            if schema_type(self.document.merged(properties[name])) == asked:
                return {key: child("$", name)}
        return {}

    def _list_in(self, answer: Mapping[str, Any]) -> str | None:
        """Return the path of the list of objects that is the answer, if it is one."""
        if schema_type(answer) == "array":
            return "$"
        lists = [
            name
            for name, value in answer.get("properties", {}).items()
            if schema_type(known := self.document.merged(value)) == "array"
            and "properties" in self.document.merged(known.get("items", {}))
        ]
        others = {name for name in answer.get("properties", {}) if name not in lists}
        names = {plain_name(name) for name in others} - {"first_id", "last_id"}
        wraps = all(ENVELOPE.issuperset(name.split("_")) for name in names)
        return child("$", lists[0]) if len(lists) == 1 and wraps else None

    def _items(self) -> Mapping[str, Any]:
        if self.array == "$":
            return self.document.merged(self.operation.answer.get("items", {}))
        for name, value in self.operation.answer["properties"].items():
            if child("$", name) == self.array:
                return self.document.merged(self.document.merged(value).get("items", {}))
        raise AssertionError(self.array)

    def _pages(self) -> dict[str, str] | None:
        """Return the fields of the pages, where an answer has a list and what leads to the next."""
        if self.array is None or self.operation.method != "GET":
            return None
        if self.array == "$":
            return self._pages_by_link() if self._is_below_a_key else None
        parameters = {
            plain_name(parameter["name"]): parameter["name"]
            for parameter in self.operation.parameters
        }
        taking = next(
            (parameters[name] for name in sorted(PAGE_PARAMETERS & set(parameters))), None
        )
        for name, column in self._paging():
            path = column.path
            page = "page" if schema_type(column.schema) == "integer" else None
            parameter = parameters.get(page) if page else taking if name in NEXT_VALUE else None
            if parameter and name in NEXT_PAGE | NEXT_VALUE:
                return self._fields_of_pages(next=path, parameter=parameter)
            if name in NEXT_PAGE and _is_address(name, column.schema, set(parameters)):
                return self._fields_of_pages(next=path)
        if not self._is_below_a_key:
            return None
        return self._pages_by_last(parameters) or self._pages_by_link()

    def _fields_of_pages(self, **fields: str) -> dict[str, str]:
        return {name: quoted(value) for name, value in fields.items()} | {
            "items": quoted(str(self.array)),
            "max_pages": "20",
        }

    def _pages_by_link(self) -> dict[str, str] | None:
        """Return the fields of pages whose header Link has the next one's address."""
        return self._fields_of_pages(next="Link") if self.operation.has_link else None

    def _pages_by_last(self, parameters: Mapping[str, str]) -> dict[str, str] | None:
        """Return the fields of pages of which each begins after the last item of the one before."""
        paging = dict(self._paging())
        taking = next((parameters[name] for name in AFTER if name in parameters), None)
        more = next((field.path for name, field in paging.items() if name in MORE_PAGES), None)
        if taking is None or more is None:
            return None
        last = f"{self.array}[-1].id" if "id" in self._items().get("properties", {}) else None
        last = paging["last_id"].path if "last_id" in paging else last
        if last is None:
            return None
        return self._fields_of_pages(next=last, parameter=taking, more=more)

    def _paging(self) -> Iterator[tuple[str, Column]]:
        """Yield each field outside the list with its name, without a prefix such as `meta_`."""
        for column in self._fields(self.operation.answer, "$", "", 2, sure=True):
            if column.type:
                name = re.sub("^((links|meta|metadata|pagination|paging|page_info)_)+", "",
                              column.name).removesuffix("_href")  # fmt: skip
                yield name, column

    def _columns(self) -> list[Column]:
        taken = set(self.keys) | {f"{self.name}_status", f"{self.name}_answered_at", "date"}
        found: Iterable[Column]
        if self.array is None:
            found = self._fields(self.operation.answer, "$", "", 2, sure=True)
        elif self.all_items:
            found = self._whole_list(self.array)
        else:
            found = self._fields(self._items(), f"{self.array}[0]", "", 2, sure=True)
        repeated = self.echo().values()
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
                 child("$", name) == path]  # fmt: skip
        name = plain_name(named[0]) if named else "items"
        is_certain = path == "$" or named[0] in given
        if kind:
            yield Column(
                name if name[:1].isalpha() else "items", f"ARRAY<{kind}>", path, is_certain, {}
            )

    def _struct(self, schema: Mapping[str, Any], depth: int) -> str:
        """Return the type of an object; its fields without a type are left out."""
        fields: dict[str, str] = {}
        for name, value in schema.get("properties", {}).items():
            known = self.document.merged(value)
            is_inner = "properties" in known and depth
            kind = self._struct(known, depth - 1) if is_inner else column_type(known)
            same = name.lower() in map(str.lower, fields)
            if not kind or not name or "`" in name or same or len(fields) == COLUMNS:
                self.left_out.append(name)
                continue
            fields[name] = kind
        inner = ", ".join(f"{in_ddl(name)}: {kind}" for name, kind in fields.items())
        return f"STRUCT<{inner}>" if fields else ""

    def _fields(
        self, schema: Mapping[str, Any], at: str, prefix: str, depth: int, *, sure: bool
    ) -> Iterator[Column]:
        for name, value in schema.get("properties", {}).items():
            known, path = self.document.merged(value), child(at, name)
            column = prefix + (plain_name(name) or "field")
            column = column if column[0].isalpha() else f"{self.name}_{column}"
            there = sure and name in schema.get("required", ()) and not may_be_null(known)
            if "properties" in known and depth:
                yield from self._fields(known, path, f"{column}_", depth - 1, sure=there)
            else:
                yield Column(column, column_type(known), path, there, known)


def _is_address(name: str, schema: Mapping[str, Any], parameters: set[str]) -> bool:
    """Return whether a `next` is an address, and not a value for one of the parameters."""
    example = str(schema.get("example") or next(iter(schema.get("examples", ())), ""))
    return schema_type(schema) == "string" and (
        name not in ("next", "next_page")
        or schema.get("format", "").startswith("ur")
        or example.startswith(("http", "/", "?"))
        or not parameters & (PAGE_PARAMETERS | PLACE_PARAMETERS)
    )
