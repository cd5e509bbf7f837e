"""The Spark program as a resource of Dagster."""

import multiprocessing

import dagster as dg

from data_quality.day_quality import CHECKS, DayQuality
from jobs.process.day_pipeline import DayPipeline
from jobs.process.process_guard import die_with_parent
from jobs.process.spark_submit import SparkSubmit, spark_submit_from_environment
from jobs.tables.leases.day_leases import WAIT
from orchestration.dagster.declared import Declared

SPARK = "tidegate_spark"  # name of the resource; a project may have a `spark` already


class SparkProgram(dg.ConfigurableResource):  # type: ignore[type-arg]
    """How `jobs/run/enrich_day.py` is started: with spark-submit, in a new session under a guard.

    Attributes:
        master: As spark-submit takes it.
        conf: Likewise.
        java_options: For the driver.
        engine: Of the runs, spark or local.
        checks: The hook that judges the written files, module:function.
        environment: For driver and executors, added to ours.
        grace: s between SIGTERM and SIGKILL.
        tell_every: s between two observations of a running day.
        wait: How long to wait for other runs of the days that are ending, in s.
    """

    master: str = "local[2]"
    conf: dict[str, str] = {}  # noqa: RUF012  # a field of a pydantic model, copied for each instance
    java_options: str = ""
    engine: str = SparkSubmit.engine
    checks: str = CHECKS
    environment: dict[str, str] = {}  # noqa: RUF012
    grace: float = 10.0
    tell_every: float = 300.0
    wait: float = WAIT

    def pipeline(self, declared: Declared) -> DayPipeline:
        """Return what runs the days of an enrichment in this step."""
        return DayPipeline(
            reference=declared.reference,
            enrichment=declared.enrichment,
            quality=DayQuality(self.checks),
            submit=self.submit(),
            wait=self.wait,
        )

    def submit(self) -> SparkSubmit:
        """Return the program for this step. A cancel or a kill of this process ends Spark."""
        if multiprocessing.parent_process() is not None:
            die_with_parent()  # a step process whose run worker is killed ends too, and ends Spark
        return SparkSubmit(
            master=self.master,
            conf=self.conf,
            java_options=self.java_options,
            engine=self.engine,
            environment=self.environment,
            grace=self.grace,
        )


def spark_program(checks: str = CHECKS) -> SparkProgram:
    """Return the program that the environment sets by TIDEGATE_ENGINE, TIDEGATE_SPARK_MASTER and
    others, with the hook that judges the written files, module:function.
    """
    wanted = spark_submit_from_environment()
    return SparkProgram(
        master=wanted.master,
        conf=dict(wanted.conf),
        java_options=wanted.java_options,
        engine=wanted.engine,
        checks=checks,
    )
