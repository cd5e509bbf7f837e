"""Which record speaks for a key, and how little is read to find it."""

from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.declare.ledger_settings import Ttl
from jobs.errors import LedgerError
from jobs.ledger import generations, scan, selection
from jobs.ledger.answers import StoredAnswer, as_answers, as_table
from jobs.ledger.changes import compaction
from jobs.ledger.changes.compaction import compact
from jobs.ledger.generations import contents
from jobs.ledger.selection import Search, select
from jobs.ledger.store import LedgerFolder, as_parquet
from tests.support.places import everywhere

SECOND = 1_000_000  # µs
NOW = 10_000 * SECOND
EVERY_KIND = Ttl(ok=None, miss=timedelta(seconds=100), error=timedelta(seconds=10))

# what is stored of one key, as (outcome, age in s); what speaks for it, or None when it is to be
# asked
CASES = [
    ([("ok", 50)], ("ok", 50)),
    ([("ok", 9_999)], ("ok", 9_999)),
    ([("ok", 50), ("ok", 40)], ("ok", 40)),
    ([("ok", 50), ("miss", 40)], ("miss", 40)),
    ([("miss", 50), ("ok", 40)], ("ok", 40)),
    ([("miss", 99)], ("miss", 99)),
    ([("miss", 100)], None),
    ([("ok", 200), ("miss", 150)], None),  # it was gone when last asked, and that is too long ago
    ([("error", 9)], ("error", 9)),
    ([("error", 10)], None),
    ([("timeout", 9)], ("timeout", 9)),
    ([("ok", 50), ("error", 5)], ("ok", 50)),
    ([("miss", 200), ("error", 5)], ("error", 5)),
    ([("error", 5), ("miss", 200)], ("error", 5)),
    ([("error", 9), ("timeout", 8)], ("timeout", 8)),
    ([("asked", 50)], ("asked", 50)),
    ([("asked", 9_999)], ("asked", 9_999)),
    ([("asked", 50), ("ok", 49)], ("ok", 49)),
    ([("asked", 250), ("miss", 200)], None),  # the call came back; its answer has had its day
    ([("asked", 50), ("error", 49)], None),  # the call came back with an error
    ([("asked", 50), ("timeout", 5)], ("asked", 50)),  # nobody knows what came of the call
    ([("asked", 50), ("miss", 200)], ("asked", 50)),
    ([("ok", 60), ("asked", 50)], ("ok", 60)),  # two runs at once: one of them has the answer
    ([("ok", 60), ("expired", 50)], None),
    ([("ok", 60), ("expired", 50), ("ok", 40)], ("ok", 40)),
    ([("ok", 50), ("expired", 50)], None),
    ([("asked", 60), ("expired", 50)], None),
    ([("error", 9), ("expired", 8)], None),
    ([("ok", 90), ("expired", 50), ("asked", 40)], ("asked", 40)),
    ([("expired", 50)], None),
]


@everywhere("folder", on_store=pytest.mark.proof)
@pytest.mark.parametrize(("records", "speaks"), CASES, ids=str)
@pytest.mark.parametrize("where", ["parts", "compacted", "both"])
def test_the_newest_unexpired_record_of_a_key_counts(folder, ledgers, records, speaks, where):
    made = [ledgers.stored("k", outcome, NOW - age * SECOND) for outcome, age in records]
    others = [ledgers.stored("other", "ok", NOW)]
    if where == "parts":
        for number, record in enumerate(made):
            folder.write_part("run-1", str(number), [record, *others])
    else:
        folder.write_part("run-1", "0", [*made[: 1 if where == "both" else None], *others])
        compact(folder)
        folder.write_part("run-2", "0", [*made[1 if where == "both" else len(made) :], *others])
    found = ledgers.known(folder, ["k"], now_us=NOW, ttl=EVERY_KIND)
    wanted = (
        {} if speaks is None else {"k": ledgers.stored("k", speaks[0], NOW - speaks[1] * SECOND)}
    )
    assert found == wanted


@everywhere("folder")
def test_by_default_an_answer_is_kept_for_ever_a_miss_a_day_and_an_error_never(folder, ledgers):
    day = 86_400 * SECOND
    failures = [ledgers.stored("e", "error"), ledgers.stored("t", "timeout")]
    folder.write_part("r", "0", [ledgers.stored("a"), ledgers.stored("m", "miss"), *failures])
    assert sorted(ledgers.known(folder, ["a", "m", "e", "t"], now_us=day, ttl=Ttl())) == ["a", "m"]
    assert sorted(ledgers.known(folder, ["a", "m", "e", "t"], now_us=day + 1, ttl=Ttl())) == ["a"]


def test_a_time_to_live_of_0_never_uses_an_answer_whatever_the_clocks_say(folder, ledgers):
    later = NOW + 3600 * SECOND  # the clock was put back since
    kinds = ("ok", "miss", "error")
    folder.write_part("r", "0-0-0", [ledgers.stored(kind, kind, later) for kind in kinds])
    never = Ttl(ok=timedelta(0), miss=timedelta(0), error=timedelta(0))
    assert ledgers.known(folder, kinds, now_us=NOW, ttl=never) == {}


@pytest.mark.parametrize("ages", [timedelta.max, timedelta(days=365 * 300_000)], ids=str)
def test_the_longest_time_to_live_means_for_ever(folder, ledgers, ages):
    folder.write_part(
        "r", "0-0-0", [ledgers.stored("a", "ok", NOW), ledgers.stored("m", "miss", NOW)]
    )
    ttl = Ttl(ok=ages, miss=ages, error=ages)
    assert sorted(ledgers.known(folder, ["a", "m", "new"], now_us=2 * NOW, ttl=ttl)) == ["a", "m"]


@everywhere("folder")
def test_of_two_records_at_the_same_time_the_record_of_the_greater_run_id_counts(folder, ledgers):
    folder.write_part("a", "0", [ledgers.stored("k", response=b"2", run_id="run-2")])
    folder.write_part("b", "0", [ledgers.stored("k", response=b"1", run_id="run-1")])
    assert ledgers.known(folder, ["k"])["k"].run_id == "run-2"


def test_wanted_keys_may_be_unsorted_and_repeated_and_answers_are_sorted(folder, ledgers):
    folder.write_part(
        "r", "0", [ledgers.stored(key) for key in ("b", "ä", "a", "𝒳", "Z", "\uffff")]
    )
    wanted = pa.chunked_array(
        [["\uffff", "b", "b", None], ["𝒳", "ä", "none", "Z"]], pa.large_string()
    )
    selected = select(folder, wanted, now_us=1, ttl=Ttl())
    assert selected.answers["key"].to_pylist() == ["Z", "b", "ä", "\uffff", "𝒳"]


@everywhere("folder")
def test_the_plan_says_why_a_key_with_an_answer_is_called_again(folder, ledgers):
    records = [
        ledgers.stored("old", "miss", 1),
        ledgers.stored("void"),
        ledgers.stored("void", "expired", 2),
        ledgers.stored("failed", "error", 1),  # it has no answer
    ]
    folder.write_part("r", "0", [*records, ledgers.stored("fine")])
    wanted = pa.array(["old", "void", "failed", "fine", "new"])
    selected = select(folder, wanted, now_us=NOW, ttl=EVERY_KIND)
    assert (selected.expired.to_pylist(), selected.refreshed.to_pylist()) == (["old"], ["void"])


@everywhere("folder")
def test_an_empty_ledger_or_no_wanted_key_gives_no_answer(folder, ledgers):
    assert ledgers.known(folder, ["k"]) == {}
    folder.write_part("r", "0", [ledgers.stored("k")])
    compact(folder)
    assert ledgers.known(folder, []) == {}


@pytest.fixture
def large(folder, ledgers, monkeypatch):
    """20,480 answers in ten compacted files of two row groups each, keys k00000 .. k20479."""
    monkeypatch.setattr(compaction, "ROWS_PER_FILE", 2048)
    folder.write_part(
        "r", "0", [ledgers.stored(f"k{n:05d}", response=b"%d" % n) for n in range(20_480)]
    )
    compact(folder, grace=timedelta(0))
    assert len([name for name in folder.names("compacted") if name.endswith(".parquet")]) == 10
    return folder


@pytest.fixture
def reads(monkeypatch):
    """The columns and the number of row groups of every read of a compacted file, in order."""
    made, original = [], pq.ParquetFile.read_row_groups

    def read_row_groups(file, groups, columns=None):
        made.append((columns, len(groups)))
        return original(file, groups, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", read_row_groups)
    return made


@everywhere("folder")
def test_only_row_groups_that_may_hold_a_wanted_key_are_read(large, reads):
    selected = select(large, pa.array(["k03000", "k03001", "k12000"]), now_us=2, ttl=Ttl())
    assert [answer.response for answer in as_answers(selected.answers)] == [
        b"3000",
        b"3001",
        b"12000",
    ]
    assert reads == [(["key"], 1), (scan.REST, 1)] * 2  # of 20 row groups in 10 files


def test_of_row_groups_without_the_wanted_key_only_the_keys_are_read(large, reads):
    select(large, pa.array(["k03000x", "k12000"]), now_us=2, ttl=Ttl())
    assert reads == [(["key"], 1), (["key"], 1), (scan.REST, 1)]
    reads.clear()
    select(large, pa.array(["a", "z"]), now_us=2, ttl=Ttl())
    assert reads == []


@everywhere("folder")
def test_a_key_too_long_for_footer_statistics_is_found(folder, ledgers):
    keys = [f"{n:05d}" + "x" * 5_000 for n in range(1_500)]
    folder.write_part("r", "0", [ledgers.stored(key) for key in keys])
    compact(folder, grace=timedelta(0))
    folder.write_part("r", "1", [ledgers.stored("short", at=2)])
    compact(folder, grace=timedelta(0))
    found = [keys[0], keys[1_499], "short"]
    assert sorted(ledgers.known(folder, [*found, "no"])) == found


@everywhere("folder")
def test_torn_parts_are_named_and_a_torn_compacted_file_too(large, ledgers, caplog):
    torn = next(name for name in large.names("compacted") if name.endswith("00003.parquet"))
    ledgers.put(large, torn, ledgers.data_of(large, torn)[:-1])
    large.write_part("r", "9", [ledgers.stored("k00001", at=2)])
    ledgers.put(large, "parts/r/9.parquet", b"")
    selected = select(large, pa.array(["k00001", "k07000", "k12000"]), now_us=2, ttl=Ttl())
    assert selected.answers["key"].to_pylist() == ["k00001", "k12000"]
    assert all(f"{name} is skipped" in caplog.text for name in (torn, "parts/r/9.parquet"))


@everywhere("folder")
def test_a_newer_format_of_a_part_or_generation_is_reported_in_one_sentence(
    folder, ledgers, monkeypatch
):
    folder.write_part("r", "0", [ledgers.stored("k")])
    with monkeypatch.context() as newer:
        newer.setattr(generations, "FORMAT", 2)
        compact(folder)
    with pytest.raises(
        LedgerError,
        match=(
            r"complete.json has format 2, and this Tidegate reads up "
            r"to 1: upgrade it"
        ),
    ):
        ledgers.known(folder, ["k"])


def test_a_file_that_vanishes_before_the_reading_makes_the_reader_list_again(
    remote, objects, ledgers
):
    remote.write_part("r", "0", [ledgers.stored("k")])
    listed = []

    def compacts_after_the_first_listing(path):
        listed.append(path)
        if len(listed) == 2:  # the parts are listed, the generations are not
            compact(remote, grace=timedelta(0))

    objects.before_listing = compacts_after_the_first_listing
    assert ledgers.known(remote, ["k"]) == {"k": ledgers.stored("k")}
    assert remote.parts() == []
    listed.clear()
    objects.before_listing = lambda path: None
    remote.write_part("r", "1", [ledgers.stored("k", at=2)])
    opened = objects.open_input_stream

    def compacts_at_the_first_open(path):
        objects.open_input_stream = opened
        compact(remote, grace=timedelta(0))
        compact(remote, grace=timedelta(0))
        return opened(path)

    objects.open_input_stream = compacts_at_the_first_open
    assert ledgers.known(remote, ["k"]) == {"k": ledgers.stored("k", at=2)}


def test_many_records_of_wanted_keys_are_reduced_while_reading(folder, ledgers, monkeypatch):
    monkeypatch.setattr(scan, "ROWS_AT_ONCE", 10)
    monkeypatch.setattr(selection, "ROWS_AT_ONCE", 10)
    for number in range(30):
        folder.write_part(
            "r", str(number), [ledgers.stored(f"k{n}", at=number * 10 + n) for n in range(5)]
        )
    assert [record.answered_at for record in ledgers.known(folder, ["k0", "k4"]).values()] == [
        290,
        294,
    ]


def test_an_arrow_table_is_written_as_a_part(folder, ledgers):
    folder.write_part("r", "0", as_table([ledgers.stored("k")]))
    assert ledgers.known(folder, ["k"]) == {"k": ledgers.stored("k")}


def test_a_part_is_read_once_while_its_file_is_unchanged(folder, ledgers, monkeypatch):
    read = []
    read_part = LedgerFolder.read_part
    monkeypatch.setattr(
        LedgerFolder, "read_part", lambda *given: read.append(given[1]) or read_part(*given)
    )

    def number_answers(*keys):
        return as_answers(select(folder, pa.array(keys), now_us=NOW, ttl=EVERY_KIND).answers)

    part = folder.write_part("run", "0-0-a-00000", [ledgers.stored("k", "ok", NOW - SECOND)])
    assert [number_answers("k", "other"), number_answers("k")] == [number_answers("k")] * 2
    assert read == [part]
    folder.replace(
        f"parts/{part}", bytes(as_parquet(as_table([ledgers.stored("other", "ok", NOW - SECOND)])))
    )
    assert (len(number_answers("k")), len(number_answers("other"))) == (0, 1)
    folder.delete(f"parts/{part}")
    assert number_answers("other") == []
    assert read == [part, part]


# -- searches that read only what is new
# -------------------------------------------------------------------------------
def record(outcome, at, run):
    return StoredAnswer("[7]", outcome, b"1" if outcome == "ok" else None, at * SECOND, run)


def after_a_search(folder):
    """A search that continues after one that found that the answer of [7] was refreshed."""
    folder.write_part("old", "0-0-0", [record("ok", 10, "old")])
    folder.write_part("refresh-1", "0-0-0", [record("expired", 50, "refresh-1")])
    search = Search(folder, pa.array(["[7]"]))
    search.update(NOW)
    assert search.selected(now_us=NOW, ttl=Ttl()).refreshed.to_pylist() == ["[7]"]
    return Search(folder, pa.array(["[7]"]), seen=search.seen)


def test_a_refreshed_answer_stays_refreshed_though_its_compaction_missed_the_mark(
    tmp_path, monkeypatch
):
    folder = LedgerFolder(str(tmp_path), "score", "f" * 16)
    search = after_a_search(folder)
    began_before = replace(contents(folder), parts=("old/0-0-0.parquet",))
    monkeypatch.setattr(compaction, "contents", lambda _: began_before)
    assert compact(folder, now_us=NOW).parts_taken_in == 1
    search.update(NOW)
    assert not search.selected(now_us=NOW, ttl=Ttl()).answers.num_rows


def test_an_answer_from_before_a_refresh_that_is_stored_later_is_not_used(tmp_path):
    folder = LedgerFolder(str(tmp_path), "score", "f" * 16)
    search = after_a_search(folder)
    folder.write_part("slow", "0-0-0", [record("ok", 40, "slow")])
    search.update(NOW)
    assert not search.selected(now_us=NOW, ttl=Ttl()).answers.num_rows
    folder.write_part("new", "0-0-0", [record("ok", 60, "new")])
    search.update(NOW)
    assert search.selected(now_us=NOW, ttl=Ttl()).answers["run_id"].to_pylist() == ["new"]


def test_a_part_found_half_written_is_read_by_the_next_search(tmp_path):
    folder = LedgerFolder(str(tmp_path), "score", "f" * 16)
    part = f"parts/{folder.write_part('new', '0-0-0', [record('ok', 10, 'new')])}"
    whole = folder.read_bytes(part)
    folder.replace(part, whole[:-1])
    search = Search(folder, pa.array(["[7]"]))
    assert not search.update(NOW)
    folder.replace(part, whole)
    assert search.update(NOW)


def test_a_mark_in_a_compacted_file_voids_an_answer_that_is_stored_later(tmp_path):
    folder = LedgerFolder(str(tmp_path), "score", "f" * 16)
    folder.write_part("old", "0-0-0", [record("ok", 10, "old")])
    folder.write_part("refresh-1", "0-0-0", [record("expired", 50, "refresh-1")])
    assert compact(folder, now_us=NOW).parts_taken_in == 2
    before = Search(folder, pa.array(["[7]"]))
    before.update(NOW)
    search = Search(folder, pa.array(["[7]"]), seen=before.seen)
    folder.write_part("slow", "0-0-0", [record("ok", 40, "slow")])
    assert search.update(NOW)
    assert not search.selected(now_us=NOW, ttl=Ttl()).answers.num_rows
