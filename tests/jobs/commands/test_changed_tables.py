"""A published table that other programs changed since its last day."""

from deltalake import DeltaTable, QueryBuilder

from tests.support.delta_logs import change_table, delete_by_vector, metadata
from tidegate.__main__ import main


def test_a_table_changed_by_another_program_is_refused_before_any_call(local_days, capsys):
    local_days.write_input("2013-01-10", ["a"])
    local_days.write_input("2013-01-11", ["b"])
    assert local_days.run("2013-01-10") == 0
    table = local_days.towns.enrichment.output.path
    change_table(table, metadata(table, {"delta.constraints.warm": "temp_c > 0"}))
    assert local_days.run("2013-01-11") == 2
    assert "has the constraint warm, temp_c > 0, which a run does not check" in (
        capsys.readouterr().err
    )
    assert len(local_days.calls) == 1


def test_forget_does_not_bring_back_rows_deleted_by_a_vector(local_days, capsys):
    local_days.write_input("2013-01-10", ["a", "b", "c"])
    assert local_days.run("2013-01-10") == 0
    table = local_days.towns.enrichment.output.path
    delete_by_vector(table, [1])
    options = ["--package", "declared", "--key", "town=a"]
    assert main(["forget", "weather", *options]) == 2
    assert "has a deletion vector" in capsys.readouterr().err
    rows = QueryBuilder().register("towns", DeltaTable(table)).execute("SELECT town FROM towns")
    assert sorted(rows.read_all()["town"].to_pylist()) == ["a", "c"]
