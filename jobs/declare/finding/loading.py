"""Loads an enrichment: `module:name` from Python, `path/defs.yaml:attributes` from YAML."""

import contextlib
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.plain_form import read_enrichment
from jobs.declare.values.type_checks import fields_fault
from jobs.errors import DeclarationError, TidegateError, naming
from jobs.wording import described, did_you_mean, innermost_frame, one_line

CONSTRUCTOR = re.compile(r"(\w+)\.__init__\(\) (?:got an unexpected keyword argument '(\w+)')?")
SERVICES = Path("services")  # NAME.yaml declares a service that several enrichments call


def load(reference: str) -> Enrichment:
    """Return the enrichment of a reference. The DeclarationError begins with file or module."""
    place, _, name = reference.rpartition(":")
    if place.endswith((".yaml", ".yml")):
        return from_yaml(Path(place), name)
    if not place or not name:
        raise DeclarationError(
            f"{reference!r} is not module:name, as in enrichments.flights:flights."
        )
    found = enrichments_of(place)
    if name not in found:
        known = f" It has: {', '.join(found)}." if found else ""
        raise DeclarationError(f"{place} has no Enrichment named {name!r}.{known}")
    return found[name]


def enrichments_of(module: str) -> dict[str, Enrichment]:
    """Return a module's top-level enrichments by their variables.

    Raises DeclarationError if it cannot be loaded.
    """
    try:
        loaded = imported(module)
    except (Exception, SystemExit) as error:
        raise DeclarationError(f"{module} cannot be loaded: {_reason(module, error)}") from error
    return {key: value for key, value in vars(loaded).items() if isinstance(value, Enrichment)}


def from_yaml(path: Path, key: str = "attributes") -> Enrichment:
    """Return the enrichment that a YAML file declares below a key.

    A service given by its name is read from `services/NAME.yaml`. Raises DeclarationError.
    """
    plain = _read(path).get(key)
    if not isinstance(plain, dict):
        raise DeclarationError(f"{path} has no fields of an enrichment below {key!r}.")
    with naming(path):
        return read_enrichment(with_services(plain))


def with_services(plain: dict[str, Any]) -> dict[str, Any]:
    """Return the data with the fields of its services in place of their names."""
    lookups = plain.get("lookups")
    if not isinstance(lookups, list):
        return plain
    return plain | {"lookups": [_with_service(lookup) for lookup in lookups]}


def _with_service(lookup: Any) -> Any:
    http = lookup.get("http") if isinstance(lookup, dict) else None
    if not isinstance(http, dict) or not isinstance(http.get("service"), str):
        return lookup
    name = http["service"]
    return lookup | {"http": http | {"service": {"name": name} | _read(SERVICES / f"{name}.yaml")}}


def _read(path: Path) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DeclarationError(f"{path} cannot be read: {error.strerror}.") from error
    except yaml.YAMLError as error:
        raise DeclarationError(f"{path} is not YAML: {one_line(str(error))}.") from error
    if not isinstance(found, dict):
        raise DeclarationError(f"{path} must hold fields with their values.")
    return found


def imported(module: str) -> ModuleType:
    """Import a module. What it prints goes to stderr: with --json, stdout has only objects."""
    with contextlib.redirect_stdout(sys.stderr):
        return importlib.import_module(module)


def _reason(module: str, error: Exception | SystemExit) -> str:
    """Return why a module cannot be loaded, and at which line of its package.

    For an unknown field it names the closest one.
    """
    place, names = "", {}
    if found := innermost_frame(error, module.partition(".")[0]):
        frame, line = found
        names, file = frame.f_globals, frame.f_globals["__name__"]
        place = f"line {line}: " if file == module else f"{file}, line {line}: "
    if isinstance(error, TidegateError):
        return f"{place}{error}"
    made = CONSTRUCTOR.match(str(error)) if isinstance(error, TypeError) else None
    if made and (field := made[2]):
        fields = getattr(names.get(made[1]), "__dataclass_fields__", {})
        return f"{place}{made[1]} has no field {field!r}.{did_you_mean(field, fields)}"
    if made and (fault := fields_fault(error)):
        return f"{place}{made[1]}: {fault}."
    return f"{place}{described(error)}"
