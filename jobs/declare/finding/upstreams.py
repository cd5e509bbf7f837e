"""Finds which enrichment publishes the input of another."""

import graphlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.discovery import Discovered
from jobs.errors import DeclarationError


def list_parent_folders(path: str) -> tuple[str, ...]:
    """Return the folders of a path, from the root down; the same for two spellings of a path."""
    return Path(os.path.abspath(path)).parts  # noqa: PTH100  # Path.absolute leaves `..` in


def input_folders(enrichment: Enrichment) -> tuple[str, ...]:
    """Return the folders of an input, or the names of catalog, namespace and Iceberg table."""
    if enrichment.input.table:
        return tuple(enrichment.input.table.split("."))
    return list_parent_folders(enrichment.input.path)


def output_folders(enrichment: Enrichment) -> Iterator[tuple[str, ...]]:
    """Yield the folders of each place where the published table can be an input of others."""
    output = enrichment.output
    yield list_parent_folders(output.path)
    if output.iceberg:
        yield tuple(output.iceberg.split("."))
    if output.parquet:
        yield list_parent_folders(output.parquet)


def find_upstream(enrichment: Enrichment, others: Iterable[Enrichment]) -> Enrichment | None:
    """Return the enrichment that publishes the input of this one; None if none of them does."""
    place = input_folders(enrichment)
    return next((other for other in others if place in output_folders(other)), None)


def find_downstream(
    published: Sequence[Enrichment], others: Sequence[Enrichment]
) -> list[Enrichment]:
    """Return the enrichments that read these tables, or tables made of them; without themselves."""
    found = list(published)
    for upstream in found:  # which grows meanwhile
        known = {enrichment.name for enrichment in found}
        found += [
            other
            for other in others
            if other.name not in known and find_upstream(other, [upstream])
        ]
    return found[len(published) :]


def upstream_first(found: Sequence[Discovered]) -> list[Discovered]:
    """Return the enrichments sorted: a publisher of an input before the enrichments that read it.

    Raises:
        DeclarationError: Enrichments read each other's tables in a circle.
    """
    enrichments = [discovered.enrichment for discovered in found]
    order = graphlib.TopologicalSorter[int]()
    for number, enrichment in enumerate(enrichments):
        upstream = find_upstream(enrichment, enrichments)
        order.add(number, *(n for n, other in enumerate(enrichments) if other is upstream))
    try:
        return [found[number] for number in order.static_order()]
    except graphlib.CycleError as error:
        names = " reads ".join(enrichments[number].name for number in reversed(error.args[1]))
        raise DeclarationError(
            f"input: {names}: a circle has no first enrichment; let one of them read another input."
        ) from error
