"""What a run sets in its Spark session."""

import pytest

from jobs.run.spark_session import FEW_ROWS, interpreted

pytestmark = pytest.mark.spark
WHOLE_STAGE = "spark.sql.codegen.wholeStage"


@pytest.fixture
def generating(spark):
    """A session that generates code, as Spark's own default is."""
    before = spark.conf.get(WHOLE_STAGE)
    spark.conf.set(WHOLE_STAGE, "true")
    yield spark
    spark.conf.set(WHOLE_STAGE, before)


def is_generated(spark):
    return "*(1)" in spark.range(9).selectExpr("id + 1")._jdf.queryExecution().executedPlan().toString()


def test_plans_of_few_rows_are_interpreted_and_others_generated(generating):
    with interpreted(generating, rows=FEW_ROWS):
        assert not is_generated(generating)
    assert is_generated(generating)
    with interpreted(generating, rows=FEW_ROWS + 1):
        assert is_generated(generating)
