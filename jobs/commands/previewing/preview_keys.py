"""Evaluates the keys of sampled rows by Arrow, or by a local Spark if Arrow cannot."""

import functools
from collections.abc import Callable, Sequence

import pyarrow as pa

from jobs.arrow_values import plus_zero
from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Lookup
from jobs.errors import SparkFailed
from jobs.input.keys.arrow_expressions import evaluate
from jobs.wording import one_line

Place = tuple[int, int]  # index of a lookup in its enrichment, index of a part in the lookup's key
LONGEST = 120  # characters of an expression in the line that announces Spark
NOT_SHOWN = (
    "Spark could not evaluate the keys of these rows. Its reason may contain personal data, as "
    "columns declared as pii are read; --show-personal shows it."
)


def evaluate_keys(
    enrichment: Enrichment,
    chosen: Sequence[Lookup],
    rows: pa.Table,
    tell: Callable[[str], None],
    *,
    show_personal: bool = False,
) -> list[list[pa.Array]]:
    """Evaluate the keys of rows, with the types of a run.

    Args:
        enrichment: The enrichment.
        chosen: The lookups.
        rows: The rows.
        tell: Called with a line before a local Spark starts.
        show_personal: Whether an error may contain personal values.

    Returns:
        An array per part of the key, for each lookup in the order of `chosen`.

    Raises:
        DeclarationError: Spark rejects an expression.
        SparkFailed: Spark cannot start, or an expression fails for a row, such as a cast.
    """
    places = [(enrichment.lookups.index(lookup), lookup) for lookup in chosen]
    keys: dict[Place, pa.Array] = {}
    expressions: dict[Place, str] = {}
    for number, lookup in places:
        for part, expression in enumerate(lookup.key_sql.values()):
            values = evaluate(expression, rows)
            if values is None:
                expressions[number, part] = expression
            else:
                keys[number, part] = values
    if expressions:
        is_personal = any(
            enrichment.has_personal_key(enrichment.lookups[number]) for number, _ in expressions
        )
        hidden = is_personal and not show_personal
        keys |= _evaluated(enrichment, rows, expressions, tell, hidden=hidden)
    return [
        [plus_zero(keys[number, part]) for part in range(len(lookup.keys))]
        for number, lookup in places
    ]


def _evaluated(
    enrichment: Enrichment,
    rows: pa.Table,
    expressions: dict[Place, str],
    tell: Callable[[str], None],
    *,
    hidden: bool,
) -> dict[Place, pa.Array]:
    from pyspark.errors import PySparkException

    from jobs.process.quiet_spark import quiet_session

    announce = functools.partial(tell, _announcement(enrichment, expressions))
    with quiet_session(f"try {enrichment.name}", "evaluate the keys", announce) as spark:
        from pyspark.sql.pandas.types import from_arrow_schema

        from jobs.run.rows.keyed_rows import with_keys

        # without types, a time without a zone would get the session's zone
        frame = spark.createDataFrame(
            rows, from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
        )
        keyed, layout = with_keys(frame, enrichment)
        names = {place: layout.keys[place[0]][place[1]] for place in expressions}
        try:
            found = keyed.select(*names.values()).toArrow()
        except PySparkException:
            if hidden:
                raise SparkFailed(NOT_SHOWN) from None
            raise
    return {place: found.column(name).combine_chunks() for place, name in names.items()}


def _announcement(enrichment: Enrichment, expressions: dict[Place, str]) -> str:
    named = (
        f"keys.{list(enrichment.lookups[number].keys)[part]}: {one_line(expression, LONGEST)}"
        for (number, part), expression in expressions.items()
    )
    return f"starting Spark to evaluate {', '.join(dict.fromkeys(named))}"
