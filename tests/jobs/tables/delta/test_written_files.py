"""Files that are written already become a table's, whatever their names."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from jobs.schema.records import WrittenFile
from jobs.storage import objects
from jobs.storage.urls import is_url
from jobs.tables import audit
from jobs.tables.delta import by_run
from tests.jobs.tables import test_publishing as days
from tests.jobs.tables.test_publishing import FIRST, SECOND, project  # noqa: F401
from tests.support.places import STORE


@pytest.mark.process
@pytest.mark.parametrize("project", [STORE], indirect=True)
def test_rows_of_a_copied_store_are_read_whatever_the_name_of_the_run(project):  # noqa: F811
    beside = audit.table_of(days.TABLE)
    for day, run_id in ((FIRST, "run 1"), (SECOND, "50%")):
        record = days.run(run_id, day, [1, 2])
        place = f"{days.TABLE}/runs/{run_id}/audit.parquet"
        objects.upload(days.Path(record.facts.files[0]), place)
        size = days.Path(record.facts.files[0]).stat().st_size
        by_run.write(beside, record.facts, [WrittenFile(place, size, 2)])
    assert is_url(beside)
    rows = DeltaTable(beside).to_pyarrow_table()
    assert rows.num_rows == 4
    assert pa.compute.unique(rows["run_id"]).to_pylist() == ["50%", "run 1"]
