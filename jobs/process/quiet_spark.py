"""A local Spark session in this process whose output is discarded."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobs.declare.finding.extras import require_extra
from jobs.errors import SparkFailed
from jobs.process.spark_needs import why_spark_cannot_start
from jobs.run.engines.spark_failures import explain_error
from jobs.run.engines.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STDERR = 2


@contextmanager
def quiet_session(
    name: str, purpose: str, before_start: Callable[[], None] = lambda: None
) -> Iterator[SparkSession]:
    """Start a local Spark session and stop it at the end; an active session is used and kept.

    Args:
        name: The session's name.
        purpose: Such as "count the keys".
        before_start: Called unless a session is active or Java is missing.

    Raises:
        DeclarationError: Spark is not installed.
        SparkFailed: Java is missing or too old, or Spark failed at its purpose; the message is a
            sentence.
    """
    require_extra("spark", f"tidegate {name}", purpose)
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None and (missing := why_spark_cannot_start()):
        raise SparkFailed(missing)
    spark = None
    try:
        if active is None:
            before_start()
            # the JVM keeps the file open for its lifetime
            with tempfile.TemporaryFile() as output, _stderr_to(output.fileno()):
                spark = session(name)
                spark.sparkContext.setLogLevel("OFF")
            # logs the stack trace of the JVM as JSON; PySpark must make it, because its calls need
            # a logger of its class
            PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
        yield active or spark  # type: ignore[misc]  # either is set
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(f"Spark could not {purpose}: {explain_error(error)}") from error
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
