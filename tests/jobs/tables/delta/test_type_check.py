"""What a day would publish is held against Delta's types and the table that is there, before
anything is called.
"""

import datetime as dt
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import DeclarationError
from jobs.input.day import of_files
from jobs.tables.delta.type_check import check_types
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output


class Never:
    async def async_invoke(self, keys):
        raise AssertionError("nothing is called")


mood = AsyncFunctionLookup(
    name="mood",
    keys={"k": "id"},
    returns="score DOUBLE",
    timeout=1.0,
    max_concurrency=1,
    function=Never,
)


@pytest.fixture
def published(tmp_path):
    """Where the table is, or will be."""
    return str(tmp_path / "published")


def check(tmp_path, published, **columns):
    """Of a day of input with these columns."""
    file = tmp_path / "part.parquet"
    pq.write_table(pa.table(columns), file)
    declared = Enrichment(
        name="things", input=Input(path=str(tmp_path)), lookups=[mood],
        output=Output(path=published)
    )  # fmt: skip
    check_types(declared, of_files([file]))


def refusal(tmp_path, published, **columns):
    with pytest.raises(DeclarationError) as refused:
        check(tmp_path, published, **columns)
    return str(refused.value).replace(str(tmp_path), "")


def publish(published, **columns):
    write_deltalake(
        published, pa.table({**columns, "date": [dt.date(2013, 1, 9)]}), partition_by=["date"]
    )


def test_a_column_that_is_all_null_needs_a_type(tmp_path, published):
    message = (
        "things: input: 'c' has no type in /part.parquet, as all of it is null there. Write "
        "it with its type"
    )
    assert refusal(tmp_path, published, id=[1], c=pa.nulls(1)) == f"{message}."
    assert refusal(tmp_path, published, id=[1], c=pa.array([[None]])) == (
        "things: input: something in 'c' has no type in /part.parquet, as it is null or empty in "
        "all rows there. Write it with its type."
    )
    publish(published, c=[1.5])
    assert refusal(tmp_path, published, id=[1], c=pa.nulls(1)) == (
        f"{message}, double in /published."
    )


def test_a_column_without_a_type_may_join_a_column_of_the_type_that_spark_assumes(
    tmp_path, published
):
    publish(published, c=pa.array([1], pa.int32()))
    check(tmp_path, published, id=[1], c=pa.nulls(1))


def test_a_column_with_another_type_than_in_the_table_is_named_with_both_types(tmp_path, published):
    publish(published, c=[1.5])
    assert refusal(tmp_path, published, id=[1], c=["1.5"]) == (
        "things: input: 'c' is string in /part.parquet, but in /published it is double. A column "
        "keeps its type: write it with that type, or under another name."
    )


def test_a_struct_may_gain_a_field_and_loses_none(tmp_path, published):
    publish(published, id=[1], place=[{"x": 1, "y": 2}])
    check(tmp_path, published, id=[1], place=[{"x": 1, "y": 2, "z": 3}])
    assert refusal(tmp_path, published, id=[1], place=[{"x": 1, "z": 3}]) == (
        "things: input: 'place' is struct<x: long, z: long> in /part.parquet, but in /published it "
        "is struct<x: long, y: long>. A column keeps its type: write it with that type, or under "
        "another name."
    )


def test_a_new_column_may_be_added_to_the_table(tmp_path, published):
    publish(published, id=[1], score=[0.5])
    check(tmp_path, published, id=[1], new=["x"])


KINDS = st.recursive(
    st.sampled_from([pa.int32(), pa.timestamp("us"), pa.timestamp("us", "UTC")]),
    lambda inner: (
        inner.map(pa.list_)
        | inner.map(lambda kind: pa.map_(pa.string(), kind))
        | st.lists(inner, min_size=1, max_size=2).map(
            lambda kinds: pa.struct([(f"f{place}", kind) for place, kind in enumerate(kinds)])
        )
    ),
    max_leaves=3,
)


@pytest.mark.parametrize("there", [{}, {"id": 1}, {"at": dt.datetime(2013, 1, 9)}])  # noqa: DTZ001
@settings(max_examples=12, deadline=None, derandomize=True)
@given(kinds=st.lists(KINDS, min_size=1, max_size=2))
def test_a_day_that_would_make_the_table_unreadable_is_refused(kinds, there):
    """The judge is deltalake, which opens the table after it took the columns."""
    with tempfile.TemporaryDirectory() as folder:
        file, table, tried = Path(folder, "day.parquet"), f"{folder}/table", f"{folder}/tried"
        columns = {f"c{place}": pa.array([None], kind) for place, kind in enumerate(kinds)}
        pq.write_table(pa.table(columns), file)
        for path in [table, tried] if there else []:
            publish(path, **{name: [value] for name, value in there.items()})
        declared = Enrichment(
            name="things", input=Input(path=folder), lookups=[mood], output=Output(path=table)
        )
        day = of_files([file])
        refused = ""
        try:
            check_types(declared, day)
        except DeclarationError as error:
            refused = str(error)
        fields = Schema.from_arrow(day.schema).fields
        try:
            if there:
                DeltaTable(tried).alter.add_columns(fields)
            else:
                DeltaTable.create(tried, Schema(fields))
            DeltaTable(tried).schema()
        except DeltaError:
            assert "a map with times without a zone, which would make the table unread" in refused
        else:
            assert "unreadable" not in refused


def test_a_table_whose_days_are_no_dates_is_refused(tmp_path, published):
    write_deltalake(published, pa.table({"id": [1], "date": ["2013-01-09"]}), partition_by=["date"])
    assert refusal(tmp_path, published, id=[1]) == (
        "things: output: the partitions of /published, date, are string there, and date here. "
        "Publish to another path."
    )


def test_a_column_with_another_case_than_in_the_table_is_refused(tmp_path, published):
    publish(published, Town=["a"], SCORE=[1.5])
    assert refusal(tmp_path, published, town=["a"]) == (
        "things: input: 'town' is 'Town' in /published; write it so, or under another name."
    )
    assert refusal(tmp_path, published, Town=["a"]) == (
        "things: lookup mood: returns: 'score' is 'SCORE' in /published; declare it so, or under "
        "another name."
    )
