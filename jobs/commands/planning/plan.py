"""Counts the calls that days of an enrichment would make, with reasons and cost, without a call."""

import contextlib
import functools
from collections.abc import Sequence

from jobs.declare.enrichment import Enrichment
from jobs.process.quiet_spark import quiet_session
from jobs.run.estimating.estimate import estimate
from jobs.run.estimating.figures import Estimate


def plan(enrichment: Enrichment, days: Sequence[str]) -> Estimate:
    """Plan these days, without a call or a write.

    Raises DeclarationError, LedgerError, and SparkFailed if Spark is needed and cannot start or
    count.
    """
    with contextlib.ExitStack() as ending:
        session = quiet_session(f"plan {enrichment.name}", "count the keys")
        return estimate(functools.cache(lambda: ending.enter_context(session)), enrichment, days)
