"""Compiles the waterfalls of an enrichment for its tasks."""

import pyarrow as pa

from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.input.keys.arrow_expressions import arrow_expression
from jobs.run.rows.chained_keys import CURE
from jobs.task.rows.choices import Choice


def compile_choices(enrichment: Enrichment) -> tuple[Choice, ...]:
    """Return the waterfalls as a task applies them.

    Raises:
        DeclarationError: Arrow cannot evaluate `accept`.
    """
    found = []
    lookups = {lookup.name: lookup for lookup in enrichment.lookups}
    for facts in enrichment.choices:
        accepts = []
        for vendor, text in zip(facts.vendors, facts.accepted, strict=True):
            written = [(column.name, column.arrow_type) for column in lookups[vendor].written]
            values = arrow_expression(text, pa.schema(written))
            if values is None:
                raise DeclarationError(
                    f"{enrichment.name}: waterfall {facts.name}: accept cannot be evaluated over "
                    f"the answers of lookup {vendor}. {CURE}"
                )
            accepts.append(values)
        kinds = tuple(column.arrow_type for column in lookups[facts.vendors[0]].columns)
        found.append(Choice(facts, tuple(accepts), kinds))
    return tuple(found)
