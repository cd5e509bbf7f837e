"""What days of an enrichment would ask, why, and what that costs: counted, not called."""

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
    """What these days would ask. Makes no call and writes nothing.

    Keys that are plain columns are counted by Arrow, others by a Spark of this process.

    Raises DeclarationError when the declaration or its input does not fit, LedgerError when the ledger cannot be read,
    SparkFailed, in one sentence, when Spark cannot start or cannot count.
    """
    with contextlib.ExitStack() as ending:
        session = quiet_session(f"plan {enrichment.name}", "count the keys")
        return estimate(functools.cache(lambda: ending.enter_context(session)), enrichment, days)
