"""What days of an enrichment would ask, why, and what that costs: counted, not called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.process.quiet_spark import quiet_session

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment
    from jobs.run.estimate import Estimate


def plan(enrichment: Enrichment, days: Sequence[str]) -> Estimate:
    """What these days would ask, by a Spark of this process. Makes no call and writes nothing.

    Raises DeclarationError when the declaration or its input does not fit, LedgerError when the ledger cannot be read,
    SparkFailed, in one sentence, when Spark cannot start or cannot count.
    """
    with quiet_session(f"plan {enrichment.name}", "count the keys") as spark:
        from jobs.run.estimate import estimate  # loads Spark's functions

        return estimate(spark, enrichment, days)
