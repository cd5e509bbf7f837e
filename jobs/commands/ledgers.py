"""The ledger folders of declared lookups, each once, with the enrichments that read it."""

from collections.abc import Iterable
from dataclasses import dataclass

from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Lookup
from jobs.errors import DeclarationError
from jobs.ledger.declared_folder import declared_folder
from jobs.ledger.store import LedgerFolder
from jobs.wording import did_you_mean


@dataclass(frozen=True)
class DeclaredLedger:
    """The ledger folder of a lookup.

    Attributes:
        lookup: The lookup.
        folder: The folder.
        read_by: module:name and enrichment of all that use it.
    """

    lookup: Lookup
    folder: LedgerFolder
    read_by: tuple[tuple[str, Enrichment], ...]

    @property
    def hidden(self) -> bool:
        return any(enrichment.has_personal_key(self.lookup) for _, enrichment in self.read_by)


def declared_ledgers(enrichments: Iterable[tuple[str, Enrichment]]) -> list[DeclaredLedger]:
    """Return the ledgers of these enrichments (module:name, enrichment), folder by folder."""
    found: dict[LedgerFolder, tuple[Lookup, list[tuple[str, Enrichment]]]] = {}
    for reference, enrichment in enrichments:
        for lookup in enrichment.lookups:
            if (folder := declared_folder(enrichment, lookup)) is not None:
                found.setdefault(folder, (lookup, []))[1].append((reference, enrichment))
    return [
        DeclaredLedger(lookup, folder, tuple(read_by))
        for folder, (lookup, read_by) in found.items()
    ]


def without_ledger(enrichments: Iterable[tuple[str, Enrichment]], lookup: str) -> list[Enrichment]:
    return [
        enrichment
        for _, enrichment in enrichments
        if enrichment.ledger is None
        and any(declared.name == lookup for declared in enrichment.lookups)
    ]


def named(enrichments: Iterable[tuple[str, Enrichment]], lookup: str) -> list[DeclaredLedger]:
    """Return the folders of the lookup of this name. Raises DeclarationError without any."""
    kept = declared_ledgers(enrichments)
    found = [ledger for ledger in kept if ledger.lookup.name == lookup]
    if not found:
        names = sorted({ledger.lookup.name for ledger in kept})
        choice = f"There are: {', '.join(names)}." if names else "No enrichment has a ledger."
        close = did_you_mean(lookup, names)
        raise DeclarationError(f"no lookup with a ledger is named {lookup!r}.{close} {choice}")
    return found
