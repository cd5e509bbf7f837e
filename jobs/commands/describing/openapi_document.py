"""Reads OpenAPI documents: resolves references, and lists the operations that can be lookups."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import yaml  # type: ignore[import-untyped]  # it is not typed

from jobs.commands.describing.openapi_schemas import TYPES, schema_type
from jobs.errors import DeclarationError

DEEPEST = 20  # references in a row; more are a circle
PLAIN = {  # what YAML takes for another type than a text in a document of OpenAPI
    "null": "null|Null|NULL|~|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "-?(0|[1-9][0-9]*)",
    "float": r"-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?",
    "merge": "<<",
}


class _JsonTypes(yaml.SafeLoader):  # type: ignore[misc]  # yaml is not typed
    """Reads the types of JSON, also as `True`: `no`, 10:30 and 2026-11-19 are texts."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


for _kind, _pattern in PLAIN.items():
    _JsonTypes.add_implicit_resolver(
        f"tag:yaml.org,2002:{_kind}", re.compile(rf"(?:{_pattern})\Z"), None
    )


@dataclass(frozen=True)
class Operation:
    """A GET or POST operation with a JSON answer.

    Attributes:
        method: GET or POST.
        path: Its path, as in the document.
        declared: The operation itself.
        parameters: All its parameters, resolved; the fields of its JSON body too, which are `in`
            "body".
        answer: The schema of its JSON answer, resolved.
        has_link: Whether its answer has the header `Link`.
    """

    method: str
    path: str
    declared: Mapping[str, Any]
    parameters: list[Mapping[str, Any]]
    answer: Mapping[str, Any]
    has_link: bool

    @property
    def name(self) -> str:
        """The operationId, or method and path."""
        return str(self.declared.get("operationId") or f"{self.method} {self.path}")

    @property
    def asked_for(self) -> list[Mapping[str, Any]]:
        """The parameters that become keys: required ones of path and query, else the first."""
        sent = [
            parameter
            for parameter in self.parameters
            if parameter["in"] in ("path", "query", "body")
        ]
        required = [
            parameter
            for parameter in sent
            if parameter.get("required") and find_constant(parameter) is None
        ]
        return required or [parameter for parameter in sent if find_constant(parameter) is None][:1]


class OpenApi:
    """An OpenAPI document of version 3.0 or 3.1."""

    def __init__(self, path: Path) -> None:
        """Raise DeclarationError if the file is no such document."""
        try:
            text = path.read_text(encoding="utf-8-sig")
            is_json = path.suffix == ".json"
            self._whole = json.loads(text) if is_json else yaml.load(text, _JsonTypes)  # noqa: S506  # a SafeLoader
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise DeclarationError(
                f"{path} cannot be read: {' '.join(str(error).split())}."
            ) from error
        version = self._whole.get("openapi", "") if isinstance(self._whole, dict) else ""
        if not str(version).startswith("3."):
            raise DeclarationError(
                f"{path} is not an OpenAPI document of version 3 (openapi: {version!r}). Convert "
                "an older one first."
            )
        info = self._whole.get("info")
        self.title = str(info.get("title", path.stem) if isinstance(info, dict) else path.stem)

    def resolve(self, value: Any) -> Any:
        """Return a value, or that to which its reference leads."""
        for _ in range(DEEPEST):
            if not isinstance(value, dict) or not isinstance(value.get("$ref"), str):
                return value
            value = self._referred(value["$ref"])
        raise DeclarationError(f"$ref {value['$ref']!r} leads to itself.")

    def _referred(self, reference: str) -> Any:
        if not reference.startswith("#/"):
            raise DeclarationError(
                f"$ref {reference!r} leads out of the document; bundle it into one file first."
            )
        found: Any = self._whole
        for step in reference[2:].split("/"):
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            found = found[int(name)] if isinstance(found, list) else found.get(name)
            if found is None:
                raise DeclarationError(f"$ref {reference!r} leads to nothing.")
        return found

    @property
    def address(self) -> str:
        """The first server's address, with the defaults of its variables."""
        servers = self._whole.get("servers") or [{"url": "/"}]
        address = str(servers[0]["url"])
        for name, variable in servers[0].get("variables", {}).items():
            address = address.replace(f"{{{name}}}", str(variable["default"]))
        return address.rstrip("/")

    def operations(self) -> list[Operation]:
        """Return the operations that can be lookups; those most like one first.

        That is a question by few keys in the path, with an object as its answer.
        """
        return sorted(self._operations(), key=self._rank)

    def _operations(self) -> Iterator[Operation]:
        for path, referred in (self._whole.get("paths") or {}).items():
            item = self.resolve(referred)
            for method in ("get", "post"):
                operation = self._operation(method.upper(), path, item.get(method), item)
                asked = operation.asked_for if operation else []
                in_path = {parameter["name"] for parameter in asked if parameter["in"] == "path"}
                if operation and asked and in_path == set(re.findall(r"\{([^}]*)\}", path)):
                    yield operation

    def _operation(
        self, method: str, path: str, declared: Any, item: Mapping[str, Any]
    ) -> Operation | None:
        """Return an operation of a path; None for one that cannot be a lookup."""
        answer, has_link = self._answer(declared) if declared else (None, False)
        body = self._body(declared) if declared and method == "POST" else []
        if answer is None or body is None or declared.get("deprecated"):
            return None
        both = [*declared.get("parameters", ()), *item.get("parameters", ())]
        found = {
            (parameter["name"], parameter["in"]): parameter
            for parameter in map(self.resolve, reversed(both))
        }
        parameters = [*reversed(found.values()), *body]
        return Operation(method, path, declared, parameters, answer, has_link)

    def _body(self, declared: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
        """Return the fields of a JSON body; None for a body that no row of plain values fills."""
        given = self.resolve(declared.get("requestBody", {})).get("content", {})
        schemas = [media.get("schema", {}) for kind, media in given.items() if "json" in kind]
        whole = self.merged(schemas[0]) if schemas else {}
        found: list[Mapping[str, Any]] = []
        for name, value in whole.get("properties", {}).items():
            known = self.merged(value)
            is_required = name in whole.get("required", ())
            field = {"name": name, "in": "body", "required": is_required, "schema": known}
            if find_constant(field) is None and known.get("type") in (None, "object", "array"):
                if is_required:
                    return None
                continue
            found.append(field)
        return found or None

    def _rank(self, operation: Operation) -> tuple[Any, ...]:
        asked = operation.asked_for
        return (
            operation.method != "GET",
            not any(parameter["in"] == "path" for parameter in asked),
            "properties" not in operation.answer,
            len(asked),
        )

    def _answer(self, declared: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, bool]:
        """Return the schema of the JSON answer, and whether the header Link comes with it."""
        for status, response in declared.get("responses", {}).items():
            if str(status) in ("200", "2XX", "default"):
                known = self.resolve(response)
                has_link = "link" in map(str.lower, known.get("headers", {}))
                for kind, content in known.get("content", {}).items():
                    if "json" in kind and "schema" in content:
                        return self.merged(content["schema"]), has_link
        return None, False

    def merged(self, schema: Any, around: tuple[int, ...] = ()) -> dict[str, Any]:
        """Return a schema resolved, with the properties of its allOf, or of the first choice.

        A child is often in the oneOf of its parent, which is in the allOf of the child; `around`
        has the ids of the schemas whose part this is.
        """
        schema = self.resolve(schema)
        if not isinstance(schema, dict) or id(schema) in around:
            return {}
        merged = {
            name: value for name, value in schema.items() if name not in ("allOf", "properties")
        }
        properties = dict(schema.get("properties", {}))
        choices = [choice for kind in ("oneOf", "anyOf") for choice in schema.get(kind, ())]
        real = [choice for choice in choices if self.resolve(choice).get("type") != "null"]
        inside = (*around, id(schema))
        parts = [self.merged(part, inside) for part in schema.get("allOf", ())]
        if real:
            parts.append(_first_of([self.merged(choice, inside) for choice in real]))
        for known in parts:
            properties = known.pop("properties", {}) | properties
            merged = known | merged
        return merged | ({"properties": properties} if properties else {})

    def security(self, operation: Operation) -> list[list[Mapping[str, Any]]]:
        """Return the ways that are offered to a call, each with the schemes that it needs."""
        ways = operation.declared.get("security", self._whole.get("security", []))
        schemes = self._whole.get("components", {}).get("securitySchemes", {})
        return [[self.resolve(schemes[name]) for name in way if name in schemes] for way in ways]


def _first_of(choices: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first choice without what another contradicts: required names, a plain type.

    Where a vendor offers an id or its object, it sends the object only to who asks for it.
    """
    first, *others = choices
    required = [
        name
        for name in first.get("required", ())
        if all(name in other.get("required", ()) for other in others)
    ]
    plain = {
        (schema_type(choice), choice.get("format"))
        for choice in choices
        if schema_type(choice) in TYPES
    }
    unsure = {"required"} | ({"format"} if len(plain) > 1 else set())
    unsure |= {"type"} if len({kind for kind, _ in plain}) > 1 else set()
    return {name: value for name, value in first.items() if name not in unsure} | (
        {"required": required} if required else {}
    )


def find_constant(parameter: Mapping[str, Any]) -> Any:
    """Return the value of a parameter that is the same for every key; else None."""
    schema = parameter.get("schema", {})
    if parameter["in"] == "path" or not isinstance(schema, dict):
        return None
    choices = schema.get("enum", [])
    return schema.get("default", schema.get("const", choices[0] if len(choices) == 1 else None))
