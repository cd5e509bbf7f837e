"""The first batch of a process: done before a kill, or formed anew by an older checkpoint."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from jobs.errors import PublishConflict
from jobs.schema.columns import SOURCE_FILE
from jobs.streams.micro_batches import MicroBatches
from tests.support.moods import MOOD
from tidegate import Enrichment, Input, Output

MOODS = Enrichment(
    name="moods", input=Input(path="raw"), lookups=[MOOD], output=Output(path="out/moods")
)
PUBLISHED = 10  # the number of the last published batch


@pytest.fixture
def first_batch(tmp_path, monkeypatch):
    """Does the first batch of a process: its number, and its files, which the table has not all."""
    monkeypatch.chdir(tmp_path)
    for folder in ("raw/date=2026-01-01", "checkpoint/offsets", "checkpoint/sources/0"):
        Path(folder).mkdir(parents=True)

    def put(name, rows):
        place = Path(f"raw/date=2026-01-01/{name}.parquet").absolute()
        pq.write_table(pa.table({"id": pa.array(range(rows), pa.int64())}), place)
        return place

    def done(number, *, new_rows):
        old, new = put("old", 1), put("new", new_rows)
        Path("checkpoint/metadata").write_text(json.dumps({"id": "query"}))
        entries = [
            json.dumps({"path": f"file://{path}", "timestamp": 0, "batchId": number})
            for path in (old, new)
        ]
        Path(f"checkpoint/sources/0/{number}").write_text("\n".join(["v1", *entries]))
        for batch in (number - 1, number):
            offset = json.dumps({"logOffset": batch})
            Path(f"checkpoint/offsets/{batch}").write_text(f"v1\n{{}}\n{offset}")
        write_deltalake(
            MOODS.output.path,
            pa.table({SOURCE_FILE: [f"file://{old}"], "date": ["2026-01-01"], "_run_id": ["day"]}),
            partition_by=["date"],
            commit_properties=CommitProperties(app_transactions=[Transaction("query", PUBLISHED)]),
        )
        batches = MicroBatches(None, MOODS, Path("checkpoint"), None, wait=0.0, published=print)
        batches(None, number)

    return done


def test_a_batch_published_before_a_kill_is_not_repeated(first_batch):
    first_batch(PUBLISHED, new_rows=0)


@pytest.mark.parametrize(("number", "new_rows"), [(PUBLISHED, 1), (PUBLISHED - 4, 0)])
def test_a_batch_of_a_restored_older_checkpoint_is_refused(first_batch, number, new_rows):
    with pytest.raises(
        PublishConflict, match=r"older checkpoint was restored\. Delete checkpoint "
    ):
        first_batch(number, new_rows=new_rows)
