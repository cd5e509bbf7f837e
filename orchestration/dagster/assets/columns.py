"""Describes the columns of an enriched table, and from which input columns each is made."""

from collections.abc import Iterable, Sequence

import dagster as dg

from jobs.declare.enrichment import written_columns
from jobs.schema.columns import published_columns
from orchestration.dagster.declared import Declared

DAY = "The day, as the input's folders name it."


def described(declared: Declared, types: Iterable[tuple[str, str]]) -> dg.TableSchema:
    texts = {declared.enrichment.input.partition: DAY}
    for lookup in declared.enrichment.lookups:
        answered = f"{lookup.service_name}, through the lookup {lookup.name}."
        texts |= {column.name: answered for column in lookup.columns}
        texts |= {column.name: column.meaning for column in published_columns(lookup.name)}
    for choice in declared.enrichment.choices:
        texts |= {column.name: column.meaning for column in choice.published() if column.meaning}
    return dg.TableSchema([dg.TableColumn(name, kind, texts.get(name)) for name, kind in types])


def added(declared: Declared) -> list[tuple[str, str]]:
    return [
        (answer.name, answer.kind) for answer in declared.enrichment.facts().published_answers()
    ]


def lineage(declared: Declared, input_columns: Sequence[str] = ()) -> dg.TableColumnLineage:
    """Return the lineage: an input column comes from itself; a column that a lookup adds comes
    from the input columns that its keys read, also through earlier answers.

    Args:
        declared: The enrichment.
        input_columns: The columns of the day that was read; without them the lineage covers only
            the answers.
    """
    by_lower_name = {name.lower(): name for name in input_columns}
    sources = {name: [name] for name in input_columns}
    for lookup in declared.enrichment.lookups:
        asked = {by_lower_name.get(name.lower(), name) for _, name in lookup.columns_read()}
        keys = sorted({source for name in asked for source in sources.get(name, [name])})
        sources |= dict.fromkeys(written_columns(lookup), keys)
    for choice in declared.enrichment.choices:
        of_vendors = {source for vendor in choice.vendors for source in sources[f"{vendor}_status"]}
        sources |= {column.name: sorted(of_vendors) for column in choice.published()}
    shown = {*input_columns, *(name for name, _ in added(declared))}
    return dg.TableColumnLineage(
        {
            name: [dg.TableColumnDep(declared.raw_key, column) for column in made_of]
            for name, made_of in sources.items()
            if name in shown
        }
    )
