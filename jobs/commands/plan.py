"""Counts the calls that days of an enrichment would make, with reasons and cost, without making them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.process.quiet_spark import quiet_session
from jobs.run.estimate import estimate

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment
    from jobs.run.estimate import Estimate


def plan(enrichment: Enrichment, days: Sequence[str]) -> Estimate:
    """Plan these days. Makes no call and writes nothing.

    Arrow counts keys that are plain columns; a Spark of this process counts others.

    Raises DeclarationError if the declaration or its input is wrong, LedgerError if the ledger cannot be read, and
    SparkFailed, with one sentence, if Spark cannot start or count.
    """
    with contextlib.ExitStack() as ending:
        session = quiet_session(f"plan {enrichment.name}", "count the keys")
        return estimate(functools.cache(lambda: ending.enter_context(session)), enrichment, days)
