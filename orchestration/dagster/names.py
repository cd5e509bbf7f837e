"""What Dagster calls the assets, jobs and sensors of enrichments. Override it where a project has names of its own."""

from collections.abc import Sequence

import dagster as dg

from jobs.declare.enrichment import Enrichment


class Names:
    """The names by default. Give a subclass to `definitions_for` to have others.

    What is one for all enrichments begins with `tidegate_`, what belongs to an enrichment with its name.
    """

    def table(self, enrichment: Enrichment) -> dg.AssetKey:
        """Of the published table."""
        return dg.AssetKey(enrichment.name)

    def beside(self, enrichment: Enrichment, name: str) -> dg.AssetKey:
        """Of a table beside the published one: dead letters, a summary, windows. name: of that table.

        By default it has the same prefix as the published table.
        """
        return dg.AssetKey([*self.table(enrichment).path[:-1], name])

    def input(self, enrichment: Enrichment, folders: Sequence[str]) -> dg.AssetKey:
        """Of an input that no asset of the project writes. folders: the last ones of its path, as many as tell it from
        the other inputs. An input with an asset key of its own (`Input(asset_key=...)`) has that.
        """
        return dg.AssetKey(list(enrichment.input.asset_key) or ["raw", *folders])

    def group(self, enrichment: Enrichment) -> str:
        """Of all its assets."""
        return enrichment.name

    def job(self, enrichment: Enrichment) -> str:
        """That runs a day of an enrichment; its schedule is called so too, with `_schedule`."""
        return f"{enrichment.name}_nightly"

    def shared(self, name: str) -> str:
        """Of a job, an op or a sensor that is one for all enrichments."""
        return f"tidegate_{name}"
