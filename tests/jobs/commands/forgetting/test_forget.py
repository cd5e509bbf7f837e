"""Forget: no byte of a key stays in anything that is ours, and nothing else goes."""

import dataclasses
import datetime as dt
import itertools
import shutil
import signal
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from data_quality import verdict_store
from data_quality.report import pages
from jobs.commands.forgetting import forget, forgotten_keys
from jobs.commands.forgetting.forgotten_evidence import FORGOTTEN
from jobs.declare.ledger_settings import FOR_EVER
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.changes.compaction import compact
from jobs.ledger.keys import key_text
from jobs.ledger.selection import select
from jobs.ledger.stored_request import write_request
from jobs.schema.records import UnwrittenRun, Verdict
from jobs.storage import durable, objects
from jobs.storage.stored_files import is_there
from jobs.storage.urls import is_url
from jobs.tables import audit, dead_letters, old_files, publishing
from jobs.tables.delivery import write_beside
from jobs.tables.delta import by_run
from jobs.tables.derived.summaries import summarize
from jobs.tables.leases.day_leases import leased
from jobs.tables.records import run_records
from jobs.tables.records.published_runs import last_published
from tests.support.lakes import lake_in
from tests.support.places import STORE, everywhere
from tests.support.variants import first_of
from tidegate.__main__ import main

pytestmark = pytest.mark.slow

FIRST, SECOND, THIRD, FOURTH = (f"2013-01-{day}" for day in range(10, 14))
TABLE, BUCKET = "data/published/towns", ""
GONE = "town-7654321"  # a word that stands nowhere by chance
NUMBER = 7654321


# all by which the command changes something outside the ledger, whose own crashes have a test of
# theirs
STEPS = (
    (Path, "unlink"), (durable, "write"), (verdict_store, "save"), (pages, "render"),
    (by_run, "write"), (by_run, "keep_only"), (by_run, "keep_published"),
    (publishing, "replace_day"), (forget, "summarize"), (old_files, "vacuum"), (objects, "write"),
    (objects, "delete"),
)  # fmt: skip


class Killed(BaseException):
    pass


def killed(*_arguments):
    raise Killed


def killed_after(steps, monkeypatch):
    """From now on this process ends when so many steps are done."""
    done = itertools.count(1)

    def counted(step):
        def run(*arguments, **options):
            result = step(*arguments, **options)
            if next(done) == steps:
                raise Killed
            return result

        return run

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))


def tidegate(*arguments):
    return main([*arguments, "--package", "declared"])


@pytest.fixture(autouse=True)
def table(towns, monkeypatch):
    monkeypatch.setitem(globals(), "TABLE", f"{towns.place}/towns")
    monkeypatch.setitem(globals(), "BUCKET", towns.place if is_url(towns.place) else "")


def numbers(day=None):
    rows = DeltaTable(TABLE).to_pyarrow_table().to_pylist()
    return sorted(row["number"] for row in rows if day is None or str(row["date"]) == day)


def a_file_for_each_row(record):
    """The same run, whose tasks had a row each, and the last one none."""
    (file,) = record.facts.files
    rows, files = pq.ParquetFile(file).read(), []
    for number in range(rows.num_rows + 1):
        files.append(str(Path(file).with_name(f"part-{number}.parquet")))
        pq.write_table(rows.slice(number, 1), files[-1])
    return dataclasses.replace(record, facts=dataclasses.replace(record.facts, files=tuple(files)))


def files_that_hold(word):
    """Everything below data/ and in the bucket with these bytes in it, packed or not: Parquet is
    read, the rest as it lies.
    """
    found = []
    for name, data in everything():
        unpacked = (
            pq.ParquetFile(pa.BufferReader(data)).read().to_pylist()
            if name.endswith(".parquet")
            else ""
        )
        if word.encode() in data or word in str(unpacked):
            found.append(name)
    return found


def everything():
    for path in Path("data").rglob("*"):
        if path.is_file():
            yield str(path), path.read_bytes()
    yield from objects_of(BUCKET)


def objects_of(bucket):
    for listed in objects.listed(bucket) if bucket else ():
        found = objects.read(f"{bucket}/{listed.name}")
        # an empty folder, which Arrow marks by an object
        yield listed.name, found.data if found else b""


@pytest.fixture(params=[False, True], ids=["open", "personal"])
def stored(towns, request):
    """A key in two days, in a dead letter, in evidence, in a held back run, in a log, in parts and
    compacted files.
    """
    hidden = request.param
    towns.declare(pii=["town"] if hidden else ())
    towns.store({NUMBER: {"temp_c": 1.0}, 1: {"temp_c": 2.0}}, hidden=hidden)
    compact(towns.folder)
    towns.store(
        {NUMBER: {"temp_c": 3.0}, 2: {"temp_c": 4.0}}, at="2013-01-11T03:00:00+00:00", hidden=hidden
    )
    evidence = Verdict(
        "weather__answers_in_range",
        "failed",
        "warn",
        f"1 answer out of range; first: number {NUMBER}",
        evidence=({"number": NUMBER, "town": GONE},),
    )
    other = dataclasses.replace(
        evidence, check="late_rows_marked", sentence="1 row", evidence=({"number": 1},)
    )
    verdict_store.save(
        towns.publish(FIRST, [1, NUMBER], statuses={NUMBER: "error"}, verdicts=[evidence, other])
    )
    towns.publish(SECOND, [2, NUMBER, 3])
    towns.publish(SECOND, [2, NUMBER, 3], run_id="again")  # the run before is an old version now
    run_records.hold_back(towns.written(SECOND, [2, NUMBER], "held", {}), "held back")
    log = run_records.run_log("towns", FIRST, f"run-{FIRST}")
    log.write_text(f"a row of {GONE}")
    ended = "2013-01-11T04:00:00+00:00"
    died = UnwrittenRun(
        "towns", SECOND, "died", "failed", f"lookup weather: {GONE} is refused.", "", ended, ended
    )
    run_records.save_unwritten(died, TABLE)
    run_records.save_unwritten(dataclasses.replace(died, run_id="torn"), TABLE)
    torn = Path("data/runs/towns", SECOND, "torn.unwritten")
    torn.write_text(torn.read_text()[:-20])
    for day in (FIRST, SECOND):
        summarize(towns.enrichment, towns.enrichment.summaries[0], day)
    towns.hidden = hidden
    return towns


@everywhere("towns", on_store=pytest.mark.proof)
def test_forget_leaves_no_byte_of_a_key_and_removes_nothing_else(stored, capsys):
    assert files_that_hold(GONE)
    Path("keys.csv").write_text(f"town\n{GONE}\n")
    assert tidegate("forget", "weather", "--key-file", "keys.csv") == 0
    assert files_that_hold(GONE) == []
    assert files_that_hold(key_text((GONE,), hidden=True)) == []
    assert [
        name for name in files_that_hold(str(NUMBER)) if not name.endswith((".json.crc",))
    ] == []
    assert (numbers(FIRST), numbers(SECOND)) == ([1], [2, 3])
    wanted = [key_text((f"town-{number}",), hidden=stored.hidden) for number in (1, 2)]
    answers = select(stored.folder, pa.array(wanted), now_us=2**60, ttl=FOR_EVER).answers
    assert answers["key"].to_pylist() == sorted(wanted)
    assert DeltaTable(f"{TABLE}__dead_letters").to_pyarrow_table().num_rows == 0
    message = capsys.readouterr().out
    assert message.startswith("Forgotten: 1 key of lookup weather\n  ledger: 1 of them stored; ")
    assert (
        f"  towns: 2 rows deleted ({FIRST}, {SECOND}), from audit and dead letters too\n" in message
    )
    assert "; 1 log of a run deleted\n" in message
    assert GONE not in message
    first = next(
        record
        for record in run_records.load("towns", FIRST)
        if record.facts.run_id == f"run-{FIRST}"
    )
    assert [(verdict.status, verdict.evidence, verdict.sentence) for verdict in first.verdicts] == [
        ("failed", (), FORGOTTEN)
    ] * 2

    assert tidegate("forget", "weather", "--key", f"town={GONE}") == 0
    again = capsys.readouterr().out
    assert "ledger: 0 of them stored" in again
    assert "towns: 0 rows deleted (no day)" in again


@everywhere("towns", on_store=pytest.mark.proof)
@pytest.mark.parametrize("stored", [False], indirect=True, ids=["open"])
@pytest.mark.parametrize("stride", [20, pytest.param(1, marks=pytest.mark.proof)])
def test_a_forget_killed_at_any_step_is_finished_by_the_same_command(stored, stride, monkeypatch):
    shutil.copytree("data", "before")
    in_bucket = dict(objects_of(BUCKET))
    held = set(files_that_hold(GONE))
    for steps in itertools.count(1, stride):
        shutil.rmtree("data")
        shutil.copytree("before", "data")
        if BUCKET:
            objects.delete(BUCKET, [name for name, _ in objects_of(BUCKET)])
        for name, data in in_bucket.items():
            objects.write(f"{BUCKET}/{name}", data)
        with monkeypatch.context() as patched:
            killed_after(steps, patched)
            try:
                tidegate("forget", "weather", "--key", f"town={GONE}")
            except Killed:
                assert set(files_that_hold(GONE)) <= held
            else:
                break
        if BUCKET:  # another machine goes on
            shutil.rmtree("data/runs")
        assert tidegate("forget", "weather", "--key", f"town={GONE}") == 0
        assert files_that_hold(GONE) == files_that_hold(str(NUMBER)) == []
        assert (numbers(FIRST), numbers(SECOND)) == ([1], [2, 3])
    assert steps > len(STEPS)


@pytest.mark.proof
@pytest.mark.process
@pytest.mark.parametrize("towns", [STORE], indirect=True)
def test_another_machine_finishes_a_killed_forget(towns, monkeypatch):
    towns.publish(FIRST, [1, NUMBER])
    summarize(towns.enrichment, towns.enrichment.summaries[0], FIRST)
    with monkeypatch.context() as patched:
        patched.setattr(forget, "summarize", killed)
        with pytest.raises(Killed):
            tidegate("forget", "weather", "--key", f"town={GONE}")
    shutil.rmtree("data/runs")
    assert tidegate("forget", "weather", "--key", f"town={GONE}") == 0
    assert numbers(FIRST) == [1]
    assert files_that_hold(GONE) == []


def test_forget_removes_a_key_wherever_else_the_table_is_shown(towns, tmp_path, monkeypatch):
    with lake_in(tmp_path, tmp_path / "data/warehouse", monkeypatch) as lake:
        towns.publish(FIRST, [1, NUMBER])  # before it was declared
        shown = f'path="{TABLE}", iceberg="lake.shop.towns", parquet="data/plain/towns"'
        towns.declare_too(
            "from tidegate import Output", f"towns = replace(towns, output=Output({shown}))"
        )
        towns.store({NUMBER: {"temp_c": 1.0}, 1: {"temp_c": 2.0}})
        towns.publish(SECOND, [2, NUMBER])
        towns.publish(SECOND, [2, NUMBER, 3], run_id="again")
        assert (
            lake.load_table("shop.towns").scan().to_arrow()["number"].to_pylist().count(NUMBER) == 2
        )
        assert tidegate("forget", "weather", "--key", f"town={GONE}") == 0
        table = lake.load_table("shop.towns")
        assert sorted(table.scan().to_arrow()["number"].to_pylist()) == [1, 2, 3]
        assert len(table.snapshots()) == 1
    assert files_that_hold(GONE) == []


@pytest.mark.proof
@everywhere("towns")
@pytest.mark.parametrize("vacuumed", [False, True])
def test_forget_removes_several_keys_although_files_are_empty_or_missing(towns, vacuumed):
    publishing.publish(a_file_for_each_row(towns.written(FIRST, [1, 2, 3], "run", {})))
    towns.publish(SECOND, [4])
    if vacuumed:
        old_files.vacuum(TABLE, older_than=forget.KEEP_NOTHING)  # takes the file without a row
    for gone in (1, 2, 3):
        assert tidegate("forget", "weather", "--key", f"town=town-{gone}") == 0
        assert numbers(FIRST) == [number for number in (1, 2, 3) if number > gone]
        last = last_published("towns", FIRST)
        assert last.figures.rows_out == 3 - gone
        assert all(map(is_there, last.facts.files))
    assert numbers(SECOND) == [4]
    assert DeltaTable(f"{towns.place}/by_town").to_pyarrow_table().num_rows == 0


def test_forget_removes_a_log_that_several_days_share(stored):
    stored.publish("2013-01-01", [5], run_id="several")  # a day that asked for other keys
    shared = run_records.run_log("towns", "2013-01-01", "several")
    shared.write_text(f"a row of {GONE}")
    run_records.run_log("towns", SECOND, "again").symlink_to(shared.resolve())
    assert tidegate("forget", "weather", "--key", f"town={GONE}") == 0
    assert files_that_hold(GONE) == []


def held_back(towns, day, number, *, run_id):
    """A run whose checks, reason and log name its first row."""
    name = f"town-{number}"
    named = Verdict(
        "every_row_once",
        "failed",
        "error",
        f"first: {name}",
        evidence=({"number": number, "town": name},),
    )
    record = towns.written(day, [number, 6], run_id, {}, verdicts=[named])
    verdict_store.save(record)
    run_records.hold_back(record, f"first: {name}")
    run_records.run_log("towns", day, run_id).write_text(f"a row of {name}")


@everywhere("towns", on_store=pytest.mark.proof)
@pytest.mark.parametrize("vacuumed", first_of([False, True]))
def test_forget_removes_a_key_from_held_back_days_and_leaves_their_other_rows(stored, vacuumed):
    held_back(stored, THIRD, NUMBER, run_id="red")
    run_records.progress_file("towns", THIRD).write_text(
        f'{{"kind": "stopped", "reason": "a row of {GONE}"}}'
    )
    if vacuumed:
        old_files.vacuum(TABLE, older_than=forget.KEEP_NOTHING)
    held_back(stored, FOURTH, 5, run_id="red too")
    # it left no record
    run_records.run_log("towns", FOURTH, "killed").write_text(f"a row of {GONE}")
    assert tidegate("forget", "weather", "--key", f"town={GONE}") == 0
    assert files_that_hold(GONE) == files_that_hold(str(NUMBER)) == []
    (other,) = run_records.load("towns", FOURTH)
    assert (other.reason, other.verdicts[0].evidence) == (
        "first: town-5",
        ({"number": 5, "town": "town-5"},),
    )
    assert run_records.run_log("towns", FOURTH, "red too").exists()


@everywhere("towns", on_store=pytest.mark.proof)
@pytest.mark.parametrize("vacuumed", [False, True])
def test_forget_removes_evidence_that_shows_a_forgotten_row_by_another_column(towns, vacuumed):
    towns.publish(FIRST, [1])
    named = Verdict(
        "user_check", "passed", "warn", "observed Jane Doe", evidence=({"owner": "Jane Doe"},)
    )
    red = towns.written(SECOND, [NUMBER], "red", {}, verdicts=[named])
    verdict_store.save(red)
    run_records.hold_back(red, "first: Jane Doe")
    if vacuumed:
        old_files.vacuum(TABLE, older_than=forget.KEEP_NOTHING)
    assert files_that_hold("Jane Doe")
    assert tidegate("forget", "weather", "--key", f"town={GONE}") == 0
    assert files_that_hold("Jane Doe") == []


@everywhere("towns", on_store=pytest.mark.proof)
def test_forget_removes_files_of_a_crashed_publication(stored):
    written = stored.written(THIRD, [NUMBER], "crashed", {NUMBER: "error"})
    crashed = write_beside(run_records.save(written).facts)
    stored.publish(FOURTH, [5], statuses={5: "error"})
    audit.write(crashed)
    dead_letters.write(crashed)  # and here the process ends
    assert tidegate("forget", "weather", "--key", f"town={GONE}") == 0
    assert files_that_hold(GONE) == files_that_hold(str(NUMBER)) == []
    audited = DeltaTable(f"{TABLE}__audit").to_pyarrow_table()["number"].to_pylist()
    assert sorted(audited) == numbers() == [1, 2, 3, 5]
    assert DeltaTable(f"{TABLE}__dead_letters").to_pyarrow_table()["number"].to_pylist() == [5]


@everywhere("towns", on_store=pytest.mark.proof)
def test_forget_is_refused_while_a_run_is_at_work(stored, capsys):
    with leased(TABLE, "2013-01-12", "working"):
        assert tidegate("forget", "weather", "--key", f"town={GONE}") == 1
    assert capsys.readouterr().err == (
        "towns: 2013-01-12 is being run by run working; nothing was forgotten. Wait for it.\n"
    )
    assert numbers(FIRST) == [1, NUMBER]


@everywhere("towns", on_store=pytest.mark.proof)
@pytest.mark.parametrize("day", [FIRST, SECOND])  # one whose rows are taken out, a new one
def test_forget_reports_a_run_that_began_meanwhile_and_a_second_forget_removes_its_rows(
    towns, monkeypatch, capsys, day
):
    towns.store({NUMBER: {"temp_c": 1.0}})
    towns.publish(FIRST, [1, NUMBER])
    before = forget.clean_records

    def a_run(*arguments):
        with leased(TABLE, day, "nightly") as lease:
            towns.store({NUMBER: {"temp_c": 1.0}}, run_id="nightly")
            publishing.publish(towns.written(day, [NUMBER], "nightly", {}), lease)
        return before(*arguments)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(forget, "clean_records", a_run)
        assert tidegate("forget", "weather", "--key", f"town={GONE}") == 1
    assert (
        f"towns: {day} was run by run nightly meanwhile, which may have asked the keys"
        in capsys.readouterr().err
    )
    assert tidegate("forget", "weather", "--key", f"town={GONE}") == 0
    assert "Not covered: the input, the services asked, " in (message := capsys.readouterr().out)
    assert "the scratch folders of a Spark that was killed" in message
    assert files_that_hold(GONE) == []


def test_a_forget_beside_another_names_it_and_says_when_to_forget_again(towns, monkeypatch, capsys):
    towns.publish(FIRST, [1, 2, NUMBER])
    before = forget.clean_records

    def another(*arguments):
        monkeypatch.setattr(forget, "clean_records", before)
        assert tidegate("forget", "weather", "--key", "town=town-2") == 0
        return before(*arguments)

    monkeypatch.setattr(forget, "clean_records", another)
    assert tidegate("forget", "weather", "--key", f"town={GONE}") == 1
    assert capsys.readouterr().err == (
        f"towns: another `forget` wrote {FIRST} again meanwhile: the keys may not be forgotten "
        "for good. Run `forget` again when the other has ended.\n"
    )
    assert tidegate("forget", "weather", "--key", f"town={GONE}") == 0
    assert files_that_hold(GONE) == []


def test_an_interrupted_forget_does_not_say_that_the_published_days_stay_as_they_are(
    towns, monkeypatch, capsys
):
    towns.publish(FIRST, [1, NUMBER])

    def ctrl_c(*_arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(forget, "remake_windows", ctrl_c)
        interrupted.setattr(signal, "signal", lambda *_: None)  # of the tests' process
        assert tidegate("forget", "weather", "--key", f"town={GONE}") == 130
    assert numbers(FIRST) == [1]
    assert capsys.readouterr().err == (
        "Interrupted; no published day is left half changed. The same command continues.\n"
    )
    assert tidegate("forget", "weather", "--key", f"town={GONE}") == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "place\nx\n",
            (
                "its first line names place; it must name the parts of the key of lookup "
                "weather: town."
            ),
        ),
        ("", "its first line names nothing"),
        ("town\n", "keys.csv contains no key; write a key on each line below the names."),
        ("town,town\nx,y\n", "its first line names town, town; it must name"),
        (
            "town\nOslo\nSpringfield, Ohio\n",
            "keys.csv, line 3: it has 2 fields and the first line 1; write a value",
        ),
        (
            'town\n"Oslo\nBergen\n',
            "double a quote inside a quoted value. Nothing was forgotten.",
        ),
        ('town\n"Os"lo\n', "a quote is not closed, or text follows a closing quote"),
        ('town\n"Oslo\n' + "Bergen\n" * 20_000, "a quote is not closed, or text follows"),
    ],
)
def test_a_key_file_without_keys_is_refused(towns, text, message, capsys):
    Path("keys.csv").write_text(text)
    assert tidegate("forget", "weather", "--key-file", "keys.csv") == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_forget_refuses_files_that_another_program_rewrote(towns, capsys):
    towns.store({1: {"temp_c": 5.0}})
    towns.publish(FIRST, [1, 2])
    DeltaTable(TABLE).optimize.z_order(["number"])
    assert tidegate("forget", "weather", "--key", "town=town-1") == 2
    assert (
        f"towns: another program wrote files of {FIRST}, as OPTIMIZE does, which do not tell the "
        "keys of their rows; nothing was forgotten. Run that day, then forget."
    ) in capsys.readouterr().err
    wanted = pa.array([key_text(("town-1",))])
    assert select(towns.folder, wanted, now_us=2**60, ttl=FOR_EVER).answers.num_rows == 1


def test_a_key_with_commas_and_line_breaks_is_given_in_quotes(towns):
    Path("keys.csv").write_text(
        '\ufefftown\r\n"Springfield, ""Ohio""\n2"\r\n\r\n""\r\n', encoding="utf-8"
    )
    (weather,) = towns.enrichment.lookups
    assert forgotten_keys.read(weather, "keys.csv") == [('Springfield, "Ohio"\n2',), ("",)]


def test_wrong_keys_on_the_command_line_are_refused(towns, capsys):
    assert tidegate("forget", "weather", "--key", "place=x") == 2
    assert "write every part of the key of weather: town=VALUE." in capsys.readouterr().err
    assert tidegate("forget", "weather") == 2
    assert "name the keys: --key-file keys.csv, or --key" in capsys.readouterr().err
    assert tidegate("forget", "weather", "--key-file", "nowhere.csv") == 2
    assert "it cannot be read" in capsys.readouterr().err


def test_forget_counts_a_key_once_whatever_its_stored_spellings(towns, capsys):
    towns.store({1: {"temp_c": 1.0}, 2: {"temp_c": 1.0}})
    towns.store({1: {"temp_c": 1.0}}, hidden=True)
    named = ("--key", "town=town-1", "--key", "town=town-1", "--key", "town=town-3")
    assert tidegate("forget", "weather", *named) == 0
    message = capsys.readouterr().out
    assert message.startswith("Forgotten: 2 keys of lookup weather\n  ledger: 1 of them stored; ")


@pytest.mark.parametrize("key", ["9" * 400, "[" * 3_000, "1e999"])
def test_a_key_that_fits_no_type_is_searched_as_a_text(key):
    assert key_text((key,)) in forgotten_keys.possible_texts([(key,)])


def test_a_key_part_that_looks_like_a_number_is_searched_as_text_and_number():
    assert forgotten_keys.possible_texts([("7", "x")]) >= {'["7","x"]', '[7,"x"]', '[7.0,"x"]'}
    assert key_text((True,)) in forgotten_keys.possible_texts([("true",)])
    assert key_text(("NaN",)) in forgotten_keys.possible_texts([("NaN",)])
    small = Decimal("0.0000001")
    assert key_text((small,)) in forgotten_keys.possible_texts([(f"{small:f}",)])


def test_a_key_part_with_a_fraction_is_searched_as_a_float_too():
    (held,) = pa.array([0.1], pa.float32()).to_pylist()
    assert forgotten_keys.possible_texts([("0.1",)]) >= {key_text((0.1,)), key_text((held,))}
    assert key_text((1e300,)) in forgotten_keys.possible_texts([("1e300",)])


def test_an_array_or_struct_in_a_key_is_given_as_json():
    given = ('{"born": "1980-01-02", "age": null}', "[1, 2]")
    assert key_text(
        ({"age": None, "born": dt.date(1980, 1, 2)}, [1, 2])
    ) in forgotten_keys.possible_texts([given])


def test_forget_finds_a_key_with_its_parts_reordered_and_spares_a_key_with_swapped_values(
    towns,
):
    """Asked were town-1 in town-2 and town-2 in town-1; the parts have been declared the other way
    round since.
    """
    parts = (
        "lookups=[replace(weather, request='GET /v1/{town}/{part}', keys={'%s': 'town', '%s': "
        "'town'})]"
    )
    towns.declare_too("towns = replace(towns, " + parts % ("part", "town") + ")")
    before, given = towns.folder, [("town-1", "town-2"), ("town-2", "town-1")]
    towns.store({1: {"temp_c": 1.0}})
    before.write_part(
        "r", "0-0-0", [StoredAnswer(key_text(key), "ok", b"{}", 1, "r") for key in given]
    )
    write_request(before, towns.enrichment.lookups[0])
    record = towns.written(FIRST, [1, 2], "run", {})
    (file,) = record.facts.files
    asked = pa.array([{"part": part, "town": town} for part, town in given])
    rows = pq.ParquetFile(file).read()
    pq.write_table(
        rows.set_column(rows.schema.get_field_index("_weather_key"), "_weather_key", asked), file
    )
    publishing.publish(record)
    towns.declare_too("towns = replace(towns, " + parts % ("town", "part") + ")")
    assert towns.folder != before
    assert tidegate("forget", "weather", "--key", "part=town-1", "town=town-2") == 0
    assert numbers() == [2]
    stored = pa.array(['["town-1"]', '["town-1","town-2"]', '["town-2","town-1"]'])
    left = select(before, stored, now_us=2**60, ttl=FOR_EVER).answers["key"].to_pylist()
    assert left == ['["town-1"]', '["town-2","town-1"]']


def test_forget_removes_rows_of_a_table_without_a_ledger(towns, capsys):
    towns.declare_too(
        "bare = replace(towns, name='bare', ledger=None, "
        "output=Output(path='data/published/bare'), summaries=[])"
    )
    towns.publish(FIRST, [1, 2])
    bare = sys.modules["declared.towns"].bare.facts()
    record = towns.written(SECOND, [1, 2], "run", {})
    folder = Path("data/published/bare/runs/run").resolve()
    shutil.copytree(record.facts.folder, folder)
    facts = dataclasses.replace(
        record.facts, declared=bare, files=(str(folder / "part-0.parquet"),)
    )
    publishing.publish(dataclasses.replace(record, facts=facts))
    assert tidegate("forget", "weather", "--key", "town=town-1") == 0
    assert (
        DeltaTable("data/published/bare").to_pyarrow_table()["number"].to_pylist()
        == numbers()
        == [2]
    )
    assert f"  bare: 1 row deleted ({SECOND})" in capsys.readouterr().out


def test_forget_names_the_enrichments_that_read_the_table(towns, capsys):
    for name, source in (("far", "bare"), ("bare", "towns")):
        towns.declare_too(
            f"{name} = replace(towns, name='{name}', lookups=[replace(towns.lookups[0], "
            f"name='other')], input=replace(towns.input, path='data/published/{source}'), "
            f"output=Output(path='data/published/{name}'), ledger=None, summaries=[])"
        )
    towns.publish(FIRST, [1, 2])
    assert tidegate("forget", "weather", "--key", "town=town-1") == 0
    assert (
        "Not looked at, because their input is made of these tables: bare, far. Run these days of "
        "them again, then `tidegate vacuum NAME --keep-days 0`." in capsys.readouterr().out
    )


def test_forget_names_enrichments_without_the_lookup_that_have_its_personal_column(towns, capsys):
    towns.declare(pii=["town"])
    for name, pii in (("same", ["Town"]), ("none", [])):
        towns.declare_too(
            f"{name} = replace(towns, name='{name}', lookups=[replace(towns.lookups[0], "
            f"name='other')], output=Output(path='data/published/{name}'), pii={pii}, summaries=[])"
        )
    towns.publish(FIRST, [1, 2])
    assert tidegate("forget", "weather", "--key", "town=town-1") == 0
    assert (
        "Not looked at, because they do not use lookup weather, but have a personal column of the "
        "same name: same. If their input has such rows" in capsys.readouterr().out
    )


def test_forget_removes_rows_of_a_moved_table_at_its_new_place(towns, monkeypatch):
    towns.publish(FIRST, [1, 2, 3], run_id="before")
    towns.place = "data/moved"
    towns.declare()
    monkeypatch.setitem(globals(), "TABLE", "data/moved/towns")
    assert last_published("towns", FIRST).facts.run_id == "before"
    towns.publish(FIRST, [1, 2], run_id="now", started_at=f"{SECOND}T02:15:00+00:00")
    assert last_published("towns", FIRST).facts.run_id == "now"
    assert tidegate("forget", "weather", "--key", "town=town-1") == 0
    assert numbers() == [2]


def test_a_ledger_that_cannot_be_opened_is_reported_in_one_sentence(towns, capsys):
    towns.declare_too("towns = replace(towns, ledger=Ledger('s3://bucket/a?b=c'))")
    assert tidegate("forget", "weather", "--key", "town=town-1") == 1
    assert capsys.readouterr().err.startswith("ledger 's3://bucket/a?b=c': it cannot be ")
