"""All that Dagster loads, made from the modules of `enrichments/`: a new enrichment is one new file there."""

from collections.abc import Sequence

import dagster as dg

import enrichments
from orchestration.assets import dead_letters_asset, enriched_asset, raw_asset, summary_asset
from orchestration.declared import Declared, enrichments_in
from orchestration.resources import SparkProgram, spark_program
from orchestration.schedules import nightly


def definitions_of(all_declared: Sequence[Declared], spark: SparkProgram) -> dg.Definitions:
    """Assets, checks, jobs and schedules of these enrichments."""
    raw = {declared.raw_key: raw_asset(declared) for declared in all_declared}  # two may read one input
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = [*raw.values()]
    for declared in all_declared:
        assets.append(enriched_asset(declared))
        if declared.has_dead_letters:
            assets.append(dead_letters_asset(declared))
        assets += [summary_asset(declared, summary) for summary in declared.enrichment.summaries]
    return dg.Definitions.merge(
        dg.Definitions(assets=assets, resources={"spark": spark}), *(nightly(declared) for declared in all_declared)
    )


defs = definitions_of(enrichments_in(enrichments), spark_program())
