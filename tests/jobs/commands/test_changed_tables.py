"""A published table that other programs changed since its last day."""

from tests.support.delta_logs import change_table, metadata


def test_the_table_is_refused_before_any_call(local_days, capsys):
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
