"""What days of an enrichment would ask, why, and what that costs: counted, not called."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobs.enrich_day import session
from jobs.errors import SparkFailed
from jobs.spark_failures import sentence_of
from jobs.spark_program import java_lacking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.declarations import Enrichment
    from jobs.ledger.estimate import Estimate

STDERR = 2


def plan(enrichment: Enrichment, days: Sequence[str]) -> Estimate:
    """What these days would ask, by a Spark of this process. Makes no call and writes nothing.

    Raises DeclarationError when the declaration or its input does not fit, LedgerError when the ledger cannot be read,
    SparkFailed, in one sentence, when Spark cannot start or cannot count.
    """
    with _quiet_session(f"plan {enrichment.name}") as spark:
        from jobs.ledger.estimate import estimate  # loads Spark's functions

        return estimate(spark, enrichment, days)


@contextmanager
def _quiet_session(name: str) -> Iterator[SparkSession]:
    """A Spark whose own words go to a file that is gone with it; a session that was there before is used and kept."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    before = SparkSession.getActiveSession()
    if before is None and (lacking := java_lacking()):
        raise SparkFailed(lacking)
    spark = None
    try:
        if before is None:
            # the JVM keeps the file for as long as it lives
            with tempfile.TemporaryFile() as said, _stderr_to(said.fileno()):
                spark = session(name)
                spark.sparkContext.setLogLevel("OFF")
            logging.getLogger("SQLQueryContextLogger").disabled = True  # PySpark's: the JVM's stack trace, as JSON
        yield before or spark  # type: ignore[misc]  # one of them there is
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(f"Spark could not count the keys: {sentence_of(error)}") from error
    finally:
        if spark is not None:
            spark.stop()


@contextmanager
def _stderr_to(file: int) -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(STDERR)
    os.dup2(file, STDERR)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, STDERR)
        os.close(kept)
