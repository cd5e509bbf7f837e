"""Loads an enrichment: `module:name` from Python, `path/defs.yaml:attributes` from YAML."""

from pathlib import Path
from typing import Any

from jobs.declare import enrichment
from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.plain_form import read_enrichment
from jobs.errors import DeclarationError, naming
from jobs.wording import one_line

SERVICES = Path("services")  # NAME.yaml declares a service that several enrichments call


def load(reference: str) -> Enrichment:
    """Return the enrichment of a reference. The DeclarationError begins with file or module."""
    path, _, key = reference.rpartition(":")
    return (
        from_yaml(Path(path), key)
        if path.endswith((".yaml", ".yml"))
        else enrichment.load(reference)
    )


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
