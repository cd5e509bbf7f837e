"""Dagster's names of the assets, jobs and sensors of enrichments, which a project may override."""

import re
from collections.abc import Sequence

import dagster as dg

from jobs.declare.enrichment import Enrichment

_OTHER = re.compile(r"[^\w.-]", re.ASCII)  # Dagster makes an identifier of a key


def allowed(folders: Sequence[str]) -> tuple[str, ...]:
    """Return folders as parts of a key, with _ for each letter that a key cannot have."""
    return tuple(_OTHER.sub("_", folder) for folder in folders)


def spelled(folders: Sequence[str]) -> tuple[str, ...]:
    """Return the same with the letter's number after _."""
    return tuple(_OTHER.sub(lambda other: f"_{ord(other[0]):x}", folder) for folder in folders)


class Names:
    """The default names. Pass a subclass to `definitions_for` for other names.

    A name that all enrichments share begins with `tidegate_`; a name of an enrichment begins with
    the enrichment's name.
    """

    def table(self, enrichment: Enrichment) -> dg.AssetKey:
        """Return the key of the published table."""
        return dg.AssetKey(enrichment.name)

    def beside(self, enrichment: Enrichment, name: str) -> dg.AssetKey:
        """Return the key of a table of this name beside the published table.

        By default it has the same prefix as the published table.
        """
        return dg.AssetKey([*self.table(enrichment).path[:-1], name])

    def input(self, enrichment: Enrichment, folders: Sequence[str]) -> dg.AssetKey:
        """Return the key of an input that no asset of the project writes.

        An input with an asset key (`Input(asset_key=...)`) has that key.

        Args:
            enrichment: The enrichment.
            folders: As many of the last folders of the input's path as distinguish it from the
                other inputs.
        """
        return dg.AssetKey(list(enrichment.input.asset_key) or ["raw", *allowed(folders)])

    def group(self, enrichment: Enrichment) -> str:
        """Return the group of all assets of an enrichment."""
        return enrichment.name

    def job(self, enrichment: Enrichment) -> str:
        """Return the name of an enrichment's day job; its schedule adds `_schedule`."""
        return f"{enrichment.name}_nightly"

    def shared(self, name: str) -> str:
        """Return the name of a job, an op or a sensor that all enrichments share."""
        return f"tidegate_{name}"
