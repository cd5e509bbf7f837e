"""For Dagster: the definitions of a package's enrichments. Needs `pip install
"tidegate[dagster]"`.
"""

from orchestration.dagster.component import Enrichment
from orchestration.dagster.definitions import definitions_for
from orchestration.dagster.home import dagster_home
from orchestration.dagster.names import Names
from orchestration.dagster.resources import SparkProgram, spark_program
from orchestration.dagster.sensors.dead_runs import signing_executor

__all__ = [
    "Enrichment",
    "Names",
    "SparkProgram",
    "dagster_home",
    "definitions_for",
    "signing_executor",
    "spark_program",
]
