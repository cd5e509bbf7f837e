"""The parts of a run from its input to its files: ledger, keys asked first, the pass."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.run.engines import spark_session
from jobs.run.enrich import write_out
from jobs.run.keys.preparation import prepare_keys
from jobs.run.plan.planner import plan_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from jobs.input.day import InputDay
    from tidegate import Enrichment


def session(name: str) -> SparkSession:
    """The session of a run, whose workers find the modules of benchmarks/ too."""
    os.environ["PYTHONPATH"] = os.pathsep.join(
        (str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))
    )
    spark = spark_session.session(name)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write_enriched(
    frame: DataFrame, declared: Enrichment, out: Path, *, day: InputDay | None = None
) -> None:
    """day: the files that the frame is read straight from, as a day's run knows them."""
    prepared, plan = plan_tasks(frame, declared, run_id=uuid.uuid4().hex, day=day)
    with prepare_keys(prepared, plan, scratch=f"{out}-keys", day=day) as run:
        write_out(prepared, run.plan, str(out))
