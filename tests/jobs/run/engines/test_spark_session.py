"""What a run sets in its Spark session."""

import pytest

from jobs.run.engines.spark_session import FEW_ROWS, interpreted

pytestmark = pytest.mark.spark
GENERATING = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}  # Spark's defaults


@pytest.fixture
def generating(spark):
    """A session that generates code, which that of `make test` does not."""
    before = {key: spark.conf.get(key) for key in GENERATING}
    for key, value in GENERATING.items():
        spark.conf.set(key, value)
    yield spark
    for key, value in before.items():
        spark.conf.set(key, value)


def is_generated(spark):
    return "*(1)" in spark.range(9).selectExpr("id + 1")._jdf.queryExecution().executedPlan().toString()


def test_plans_of_few_rows_are_interpreted_and_others_generated(generating):
    with interpreted(generating, rows=FEW_ROWS):
        assert not is_generated(generating)
    assert is_generated(generating)
    with interpreted(generating, rows=FEW_ROWS + 1):
        assert is_generated(generating)
