"""Finds what is declared: every Enrichment in every module of a package."""

import importlib
import pkgutil
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import dagster as dg

from jobs.declarations import Enrichment
from jobs.errors import DeclarationError
from jobs.schema import DeclaredFacts
from jobs.written_tables import clash


@dataclass(frozen=True)
class Declared:
    """One enrichment, and where the Spark program finds it."""

    reference: str  # module:name
    enrichment: Enrichment

    @cached_property
    def facts(self) -> DeclaredFacts:
        return self.enrichment.facts()

    @property
    def name(self) -> str:
        return self.enrichment.name

    @property
    def key(self) -> dg.AssetKey:
        return dg.AssetKey(self.enrichment.name)

    @property
    def raw_key(self) -> dg.AssetKey:
        return dg.AssetKey(["raw", self.enrichment.input.path.rstrip("/").rpartition("/")[2]])

    @property
    def dead_letters_key(self) -> dg.AssetKey:
        return dg.AssetKey(f"{self.enrichment.name}__dead_letters")

    @property
    def dead_letters_table(self) -> str:
        return f"{self.enrichment.output.path}__dead_letters"

    @property
    def has_dead_letters(self) -> bool:
        return any(lookup.dead_letters for lookup in self.facts.lookups)

    @property
    def days(self) -> dg.DailyPartitionsDefinition:
        """One partition per day, UTC; the days of an enrichment without an end go on."""
        return dg.DailyPartitionsDefinition(start_date=self.enrichment.start, end_date=self.enrichment.end)

    @property
    def job_name(self) -> str:
        return f"{self.enrichment.name}_nightly"


def enrichments_in(package: ModuleType) -> list[Declared]:
    """Every Enrichment at the top level of the package's modules, by name.

    Raises:
        DeclarationError: two of them have one name, or write into one table.
    """
    found: dict[str, Declared] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for name, value in vars(module).items():
            if isinstance(value, Enrichment) and not any(value is declared.enrichment for declared in found.values()):
                _add(found, Declared(f"{module.__name__}:{name}", value))
    return sorted(found.values(), key=lambda declared: declared.name)


def _add(found: dict[str, Declared], new: Declared) -> None:
    said = clash((new.reference, new.enrichment), [(old.reference, old.enrichment) for old in found.values()])
    if said:
        raise DeclarationError(said)
    found[new.name] = new
