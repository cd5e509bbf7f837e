"""Reads OpenAPI documents: resolves references, and lists the operations that can be lookups."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml  # type: ignore[import-untyped]  # it is not typed

from jobs.errors import DeclarationError

DEEPEST = 20  # references in a row; more are a circle


@dataclass(frozen=True)
class Operation:
    """A GET operation with a JSON answer.

    Attributes:
        path: Its path, as in the document.
        declared: The operation itself.
        parameters: All its parameters, resolved.
        answer: The schema of its JSON answer, resolved.
    """

    path: str
    declared: Mapping[str, Any]
    parameters: list[Mapping[str, Any]]
    answer: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The operationId, or method and path."""
        return str(self.declared.get("operationId") or f"GET {self.path}")

    @property
    def asked_for(self) -> list[Mapping[str, Any]]:
        """The parameters that become keys: required ones of path and query, else the first."""
        sent = [one for one in self.parameters if one["in"] in ("path", "query")]
        required = [one for one in sent if one.get("required") and constant_of(one) is None]
        return required or [one for one in sent if constant_of(one) is None][:1]


class OpenApi:
    """An OpenAPI document of version 3.0 or 3.1."""

    def __init__(self, path: Path) -> None:
        """Raise DeclarationError if the file is no such document."""
        try:
            text = path.read_text(encoding="utf-8")
            self._whole = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise DeclarationError(
                f"{path} cannot be read: {' '.join(str(error).split())}."
            ) from error
        version = self._whole.get("openapi", "") if isinstance(self._whole, dict) else ""
        if not str(version).startswith("3."):
            raise DeclarationError(
                f"{path} is no OpenAPI document of version 3 (openapi: {version!r}). Convert an "
                "older one first."
            )
        info = self._whole.get("info")
        self.title = str(info.get("title", path.stem) if isinstance(info, dict) else path.stem)

    def resolve(self, value: Any) -> Any:
        """Return a value, or that to which its reference leads."""
        for _ in range(DEEPEST):
            if not isinstance(value, dict) or not isinstance(value.get("$ref"), str):
                return value
            value = self._referred(value["$ref"])
        raise DeclarationError("a reference of the document leads to itself.")

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
            declared = item.get("get")
            answer = self._answer(declared) if declared else None
            if answer is None or declared.get("deprecated"):
                continue
            both = [*declared.get("parameters", ()), *item.get("parameters", ())]
            parameters = {
                (one["name"], one["in"]): one for one in map(self.resolve, reversed(both))
            }
            operation = Operation(path, declared, list(reversed(parameters.values())), answer)
            in_path = {one["name"] for one in operation.asked_for if one["in"] == "path"}
            if operation.asked_for and in_path == set(re.findall(r"\{([^}]*)\}", path)):
                yield operation

    def _rank(self, operation: Operation) -> tuple[Any, ...]:
        asked = operation.asked_for
        return (
            not any(one["in"] == "path" for one in asked),
            "properties" not in operation.answer,
            len(asked),
        )

    def _answer(self, declared: Mapping[str, Any]) -> Mapping[str, Any] | None:
        for status, response in declared.get("responses", {}).items():
            if str(status) in ("200", "2XX", "default"):
                contents = self.resolve(response).get("content", {})
                for kind, content in contents.items():
                    if "json" in kind and "schema" in content:
                        return self.merged(content["schema"])
        return None

    def merged(self, schema: Any) -> dict[str, Any]:
        """Return a schema resolved, with the properties of its allOf, or of the first choice."""
        schema = self.resolve(schema)
        if not isinstance(schema, dict):
            return {}
        merged = {
            name: value for name, value in schema.items() if name not in ("allOf", "properties")
        }
        properties = dict(schema.get("properties", {}))
        choices = [one for kind in ("oneOf", "anyOf") for one in schema.get(kind, ())]
        real = [one for one in choices if self.resolve(one).get("type") != "null"]
        for part in [*schema.get("allOf", ()), *real[:1]]:
            known = self.merged(part)
            properties = known.pop("properties", {}) | properties
            merged = known | merged
        return merged | ({"properties": properties} if properties else {})

    def security(self, operation: Operation) -> list[Mapping[str, Any]]:
        """Return the security schemes that a call needs: of the first way that is offered."""
        ways = operation.declared.get("security", self._whole.get("security", []))
        schemes = self._whole.get("components", {}).get("securitySchemes", {})
        return [
            self.resolve(schemes[name]) for name in (ways[0] if ways else {}) if name in schemes
        ]


def constant_of(parameter: Mapping[str, Any]) -> Any:
    """Return the value of a parameter that is the same for every key; else None."""
    schema = parameter.get("schema", {})
    if parameter["in"] == "path" or not isinstance(schema, dict):
        return None
    choices = schema.get("enum", [])
    return schema.get("default", schema.get("const", choices[0] if len(choices) == 1 else None))
