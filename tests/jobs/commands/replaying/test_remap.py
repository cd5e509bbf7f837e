"""Remap never takes an answer away from readers; which days there are to remap."""

import dataclasses
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.commands.lost_answers import explain_lost_answers
from jobs.commands.replaying.remap import published_days, remap
from jobs.errors import DeclarationError
from jobs.process.day_pipeline import DayPipeline
from jobs.schema import columns as schema
from jobs.tables.records import run_records
from jobs.tables.records.published_runs import last_published
from tests.support.places import everywhere
from tidegate.__main__ import main

FIRST, SECOND, THIRD = "2013-01-10", "2013-01-11", "2013-01-12"


def files(record):
    return record.facts.published_files


@everywhere("towns", on_store=pytest.mark.proof)
def test_a_day_that_would_lose_an_answer_is_held_back_with_the_cure(towns):
    before = towns.publish(FIRST, [1, 2, 3], statuses={3: "error"})
    now = towns.written(FIRST, [1, 2, 3], "remapped", {2: "not_asked", 3: "not_asked"})
    assert explain_lost_answers(files(before), now) == (
        "lookup weather: 1 row has an answer in the published day whose response the ledger does "
        "not hold, and would lose it. Run the day instead, which asks for them."
    )


@pytest.mark.process
def test_a_day_whose_lookup_was_renamed_is_held_back(towns, monkeypatch, capsys):
    monkeypatch.setenv("WEATHER_URL", "http://127.0.0.1:9")
    towns.write_input(FIRST, [1, 2])
    towns.publish(FIRST, [1, 2])
    declaration = Path("declared/towns.py")
    declaration.write_text(declaration.read_text().replace('name="weather",', 'name="climate",'))
    sys.modules.pop("declared.towns")
    command = ["remap", "towns", "--from", FIRST, "--engine", "local", "--package", "declared"]
    assert main(command) == 1
    assert (
        "lookup weather, which is no longer declared: 2 rows have an answer in the published day "
        "whose response the ledger does not hold, and would lose it."
    ) in capsys.readouterr().out


@everywhere("towns", on_store=pytest.mark.proof)
def test_the_published_run_is_the_run_whose_files_readers_see_despite_wrong_clocks(towns):
    first = towns.publish(FIRST, [1, 2], run_id="first")
    towns.publish(FIRST, [1, 2, 3], run_id="second")
    # by a clock put back since
    run_records.save(dataclasses.replace(first, published_at="2099-01-01T00:00:00+00:00"))
    assert last_published("towns", FIRST).facts.run_id == "second"


def test_a_row_without_an_answer_may_stay_without_an_answer(towns):
    before = towns.publish(FIRST, [1, 2, 3], statuses={3: "error"})
    now = towns.written(FIRST, [1, 2, 3], "remapped", {3: "not_asked"})
    assert explain_lost_answers(files(before), now) == ""
    assert explain_lost_answers([], towns.written(FIRST, [1], "first", {1: "not_asked"})) == ""


@everywhere("towns", on_store=pytest.mark.proof)
def test_lost_answers_are_counted_per_row_and_not_by_total(towns):
    # whose answer came after its row had left
    before = towns.publish(FIRST, [1, 2], statuses={2: "timeout"})
    now = towns.written(FIRST, [1, 2, 4], "remapped", {1: "not_asked"})  # 4 is new in the input
    assert explain_lost_answers(files(before), now).startswith(
        "lookup weather: 1 row has an answer in the published day"
    )


def test_rows_without_ids_of_a_rewritten_input_are_not_compared(towns):
    def of_file(record, file):
        declared = dataclasses.replace(record.facts.declared, row_id=())
        facts = dataclasses.replace(record.facts, declared=declared, input_files=(file,))
        return dataclasses.replace(record, facts=facts)

    before = towns.publish(FIRST, [1, 2])  # of the file /x
    now = towns.written(FIRST, [1, 2], "remapped", {2: "not_asked"})
    assert explain_lost_answers(files(before), of_file(now, "/raw/part-0-a0b2.parquet")) == (
        "lookup weather: some rows have no stored response, and the input was written again since "
        "the day was published (/x is gone), so that rows cannot be "
        "compared. Run the day instead, or declare a row_id that no two rows share."
    )
    lost = explain_lost_answers(files(before), of_file(now, "/x"))
    assert lost.startswith("lookup weather: 1 row has an answer")


def test_a_row_keeps_its_answer_beside_another_with_an_equal_id(towns):
    def of_equal_ids(run_id, statuses):
        record = towns.written(FIRST, [1, 2], run_id, statuses)
        (file,) = files(record)
        rows = pq.read_table(file)
        pq.write_table(rows.set_column(0, "number", [pa.nulls(2, pa.int32())]), file)
        return dataclasses.replace(
            record, facts=dataclasses.replace(record.facts, input_files=("/x",))
        )

    before = of_equal_ids("before", {2: "error"})
    assert explain_lost_answers(files(before), of_equal_ids("first", {2: "not_asked"})) == ""
    lost = explain_lost_answers(files(before), of_equal_ids("second", {1: "not_asked"}))
    assert lost.startswith("lookup weather: 1 row has an answer")


@everywhere("towns", on_store=pytest.mark.proof)
def test_forgotten_rows_do_not_count_as_lost_answers(towns):
    towns.publish(FIRST, [1, 2, 3], statuses={3: "error"})
    assert main(["forget", "weather", "--key", "town=town-1", "--package", "declared"]) == 0
    for left in ([2, 3], [1, 2, 3]):  # the input without the row, or with it still
        unknown = dict.fromkeys((1, 3), "not_asked")
        now = towns.written(FIRST, left, f"remapped {left}", unknown)
        assert explain_lost_answers(files(last_published("towns", FIRST)), now) == ""


@everywhere("towns", on_store=pytest.mark.proof)
def test_an_answer_that_no_longer_fits_does_not_count_as_lost(towns):
    before = towns.publish(FIRST, [1, 2])
    assert (
        explain_lost_answers(files(before), towns.written(FIRST, [1, 2], "remapped", {2: "error"}))
        == ""
    )


@pytest.mark.parametrize(("key", "lost"), [("town", False), ("temp_c", True)])
def test_a_skipped_row_lost_its_answer_only_if_what_its_key_reads_was_not_asked(towns, key, lost):
    before = with_tides(towns.publish(FIRST, [1, 2], statuses={1: "error"}), key, ["ok", "ok"])
    now = towns.written(FIRST, [1, 2], "remapped", {1: "not_asked"})  # and its `when` changed
    found = explain_lost_answers(files(before), with_tides(now, key, ["skipped", "ok"]))
    assert found.startswith("lookup tides: 1 row has an answer") is lost
    assert bool(found) is lost


def with_tides(record, key, statuses):
    """The run with a second lookup, by a key that is this SQL. statuses: of its rows."""
    (file,), (weather,) = record.facts.files, record.facts.declared.lookups
    rows = pq.read_table(file).append_column(schema.status("tides"), pa.array(statuses))
    pq.write_table(rows, file)
    tides = dataclasses.replace(weather, name="tides", returns=(), keys=(("at", key),))
    declared = dataclasses.replace(record.facts.declared, lookups=(weather, tides))
    return dataclasses.replace(record, facts=dataclasses.replace(record.facts, declared=declared))


@everywhere("towns", on_store=pytest.mark.proof)
def test_a_remap_covers_the_days_that_readers_see(towns):
    assert published_days(towns.enrichment, FIRST) == []
    for day in (FIRST, SECOND, THIRD):
        towns.publish(day, [1])
    assert published_days(towns.enrichment, SECOND) == [SECOND, THIRD]
    assert published_days(towns.enrichment, FIRST, SECOND) == [FIRST, SECOND]
    towns.publish(FIRST, [1], run_id="again")
    assert last_published("towns", FIRST).facts.run_id == "again"


def test_the_last_run_is_found_also_after_the_table_was_deleted(towns):
    for run_id in ("first", "second"):
        record = towns.publish(FIRST, [1], run_id=run_id)
        run_records.save(dataclasses.replace(record, published_at="2013-01-11T00:00:00+00:00"))
    shutil.rmtree("data/published")
    assert towns.publish(FIRST, [1], run_id="afresh").published_version < record.published_version
    assert last_published("towns", FIRST).facts.run_id == "afresh"


def test_a_day_that_cannot_be_remapped_is_reported_in_one_sentence(towns, capsys):
    assert main(["remap", "wether", "--from", FIRST, "--package", "declared"]) == 2
    assert capsys.readouterr().err == (
        "no lookup or enrichment is called 'wether'. Did you mean 'weather'? There are: towns, "
        "weather.\n"
    )
    for name in ("weather", "declared.towns:towns"):
        assert main(["remap", name, "--from", FIRST, "--package", "declared"]) == 0
        assert capsys.readouterr().out == (
            f"towns: no row from {FIRST} to now is published: nothing to do.\n"
        )
    Path("declared/towns.py").rename("declared/of_file.py")
    assert main(["remap", "of_file", "--from", FIRST, "--package", "declared"]) == 0
    Path("declared/of_file.py").rename("declared/towns.py")
    enrichment = dataclasses.replace(towns.enrichment, ledger=None)
    without = DayPipeline(
        reference="declared.towns:towns", enrichment=enrichment, quality=None, submit=None
    )
    with pytest.raises(DeclarationError, match="has no ledger: there are no stored responses"):
        list(remap(without, [FIRST]))


def test_a_remap_whose_last_day_is_before_its_first_is_refused(towns, capsys):
    towns.publish(FIRST, [1])
    command = ["remap", "towns", "--from", SECOND, "--to", FIRST, "--package", "declared"]
    assert main(command) == 2
    assert f"--to is {FIRST}, before --from, {SECOND}; exchange them." in capsys.readouterr().err
