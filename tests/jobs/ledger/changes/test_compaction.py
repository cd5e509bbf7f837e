"""Many parts into few files: nothing lost, whatever crashes, and whoever reads, writes or compacts
at the same time.
"""

import itertools
import random
import time
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.declare.ledger_settings import Ttl
from jobs.errors import LedgerError
from jobs.ledger.answers import SCHEMA, as_answers
from jobs.ledger.changes import compaction, merging
from jobs.ledger.changes.compaction import Compacted, compact
from jobs.ledger.changes.erasure import forget
from jobs.ledger.generations import contents, newest_generation
from jobs.ledger.store import LedgerFolder
from tests.support.places import everywhere

NOW = timedelta(0)  # as a grace period: none
HOUR_US = 3_600_000_000
KEYS = [f"k{number}" for number in range(40)]


def fill(folder, ledgers, *, runs=3, seed=0):
    """Records of every outcome for KEYS in several parts."""
    choose = random.Random(seed)
    at = itertools.count(1)
    for run in range(runs):
        for part in range(2):
            records = [
                ledgers.stored(
                    choose.choice(KEYS),
                    choose.choice(["ok", "ok", "miss", "error", "asked", "expired"]),
                    next(at),
                    b"%d" % choose.randrange(1000),
                )
                for _ in range(20)
            ]
            folder.write_part(f"run-{seed}-{run}", str(part), records)


@everywhere("folder", on_store=pytest.mark.proof)
def test_a_compaction_keeps_each_answer_in_use_and_writes_one_file(folder, ledgers):
    fill(folder, ledgers)
    before = ledgers.known(folder, KEYS)
    done = compact(folder)
    assert (done.parts_taken_in, done.deleted) == (6, 0)
    assert len(contents(folder).generation.files) == 1
    assert ledgers.known(folder, KEYS) == before != {}
    assert contents(folder).parts == ()
    compact(folder, grace=NOW)
    assert folder.parts() == []
    assert ledgers.known(folder, KEYS) == before


def test_a_journal_without_records_is_compacted(tmp_path):
    folder = LedgerFolder(str(tmp_path), "price", "f" * 16)
    journal = folder.journal("run-1", "0-0-token-00000")
    journal.append(((),) * len(SCHEMA))
    done = compact(folder, now_us=3 * 24 * HOUR_US + time.time_ns() // 1000)
    assert (done.parts_taken_in, done.rows) == (1, 0)
    assert contents(folder).parts == ()


@everywhere("folder", on_store=pytest.mark.proof)
def test_later_parts_are_merged_into_compacted_files(folder, ledgers):
    for seed in range(5):
        fill(folder, ledgers, seed=seed)
        before = ledgers.known(folder, KEYS)
        compact(folder, grace=NOW)
        assert ledgers.known(folder, KEYS) == before


@everywhere("folder", on_store=pytest.mark.proof)
def test_compacting_twice_changes_nothing(folder, ledgers):
    fill(folder, ledgers)
    compact(folder)
    names = folder.names()
    done = compact(folder)
    assert done == Compacted(rows=done.rows)
    assert folder.names() == names
    assert compact(type(folder)(folder.root, "empty", "f")) == Compacted()


@everywhere("folder", on_store=pytest.mark.proof)
@pytest.mark.parametrize("limits", [
    {(compaction, "ROWS_PER_FILE"): 2_000, (compaction, "ROWS_IN_MEMORY"): 3_000},
    {(merging, "LARGEST"): 30_000, (compaction, "LARGEST"): 200_000},  # bytes, of long answers
])  # fmt: skip
def test_compacted_files_are_sorted_without_overlap_and_hold_each_key_and_outcome_once(
    folder, ledgers, monkeypatch, limits
):
    for (module, name), limit in limits.items():
        monkeypatch.setattr(module, name, limit)
    choose = random.Random(1)
    for part in range(10):
        records = [
            ledgers.stored(f"[{choose.randrange(6_000)}]", at=part * 2_000 + n)
            for n in range(2_000)
        ]
        folder.write_part("run-1", str(part), records)
    compact(folder, grace=NOW)
    files = newest_generation(folder).files
    assert len(files) >= 2
    records = []
    for file in files:
        with folder.open(f"compacted/{file.name}") as opened:
            keys = [answer.key for answer in as_answers(opened.read())]
        assert (file.smallest, file.largest, file.rows) == (keys[0], keys[-1], len(keys))
        records += keys
    assert records == sorted(set(records))
    assert max(file.rows for file in files) <= 4_000


def test_a_compaction_that_crashes_at_any_step_loses_no_answer_and_the_next_finishes(
    remote, objects, ledgers
):
    fill(remote, ledgers, runs=2)
    compact(remote, grace=NOW)
    fill(remote, ledgers, runs=2, seed=1)
    before, start = ledgers.known(remote, KEYS), dict(objects.objects)
    crashes = 0
    for step in itertools.count():
        objects.objects.clear()
        objects.objects.update(start)
        objects.changes_left = step
        try:
            compact(remote, grace=NOW)
        except LedgerError:
            crashes += 1
            objects.changes_left = None
            assert ledgers.known(remote, KEYS) == before
            compact(remote, grace=NOW)
            compact(remote, grace=NOW)
            assert ledgers.known(remote, KEYS) == before
            assert remote.parts() == []
        else:
            break
    assert crashes >= 6


@everywhere("folder", on_store=pytest.mark.proof)
def test_a_generation_whose_last_object_is_torn_is_reported_and_nothing_is_deleted(folder, ledgers):
    fill(folder, ledgers)
    before = ledgers.known(folder, KEYS)
    compact(folder, grace=NOW)
    complete = f"compacted/{newest_generation(folder).name}/complete.json"
    data, names = ledgers.data_of(folder, complete), folder.names()
    for length in range(0, len(data), 30):
        ledgers.put(folder, complete, data[:length])
        for job in (
            lambda: ledgers.known(folder, KEYS),
            lambda: compact(folder, grace=NOW),
            lambda: forget(folder, KEYS),
        ):
            with pytest.raises(
                LedgerError, match=r"complete.json is damaged: .* Restore it from a copy"
            ):
                job()
    assert folder.names() == names
    ledgers.put(folder, complete, data)
    assert ledgers.known(folder, KEYS) == before


@everywhere("folder")
def test_a_compacted_file_that_is_gone_is_named_with_a_cure(folder, ledgers):
    fill(folder, ledgers)
    before = ledgers.known(folder, KEYS)
    compact(folder, grace=NOW)
    folder.write_part("later", "0", [ledgers.stored("new")])
    gone = f"compacted/{newest_generation(folder).files[0].name}"
    data = ledgers.data_of(folder, gone)
    folder.delete(gone)  # as a store does by a rule about old objects
    names = folder.names()
    with pytest.raises(LedgerError, match=rf"{gone}.* Restore it from a copy. Without one, delete"):
        ledgers.known(folder, KEYS)
    for job in (lambda: compact(folder, grace=NOW), lambda: forget(folder, KEYS)):
        with pytest.raises(LedgerError, match=gone):
            job()
    assert folder.names() == names
    ledgers.put(folder, gone, data)
    assert ledgers.known(folder, KEYS) == before


@everywhere("folder", on_store=pytest.mark.proof)
def test_a_torn_generation_that_was_replaced_is_skipped(folder, ledgers, caplog):
    fill(folder, ledgers)
    compact(folder)
    torn = f"compacted/{newest_generation(folder).name}/complete.json"
    fill(folder, ledgers, seed=1)
    before = ledgers.known(folder, KEYS)
    compact(folder)
    ledgers.put(folder, torn, b"")
    assert ledgers.known(folder, KEYS) == before
    assert not compact(folder).given_up
    assert "complete.json is skipped" in caplog.text


def test_the_next_compaction_removes_the_files_of_a_crashed_compaction(remote, objects, ledgers):
    fill(remote, ledgers)
    objects.changes_left = 1  # the file of the generation is put, what makes it whole is not
    with pytest.raises(LedgerError):
        compact(remote)
    objects.changes_left = None
    (left,) = remote.names("compacted")
    compact(remote)
    assert left not in remote.names("compacted")


@everywhere("folder", on_store=pytest.mark.proof)
@pytest.mark.parametrize(
    "name", ["backup", "99999999999999999x", "2026-11-26", "00000000000000009-copy"]
)
def test_a_foreign_folder_beside_the_generations_changes_nothing(folder, ledgers, name):
    fill(folder, ledgers)
    compact(folder, grace=NOW)
    fill(folder, ledgers, seed=1)
    before, newest = ledgers.known(folder, KEYS), newest_generation(folder).name
    foreign = [
        f"compacted/{name}/complete.json",
        f"compacted/{name}/{newest}/complete.json",
        f"compacted/{name}.txt",
    ]
    for stray in foreign:
        ledgers.put(folder, stray, b"{}")
    assert ledgers.known(folder, KEYS) == before
    assert not compact(folder, grace=NOW).given_up
    forget(folder, KEYS[:1])
    assert ledgers.known(folder, KEYS[1:]) == {
        key: answer for key, answer in before.items() if key != KEYS[0]
    }
    assert set(foreign) <= set(folder.names())


def test_merged_parts_and_old_generations_stay_for_the_grace_period(remote, ledgers):
    day = 24 * HOUR_US
    fill(remote, ledgers)
    parts = remote.parts()
    compact(remote, now_us=HOUR_US)
    fill(remote, ledgers, seed=1)
    first = newest_generation(remote).name
    compact(remote, now_us=2 * HOUR_US)
    compact(remote, now_us=HOUR_US + day - 1)
    assert set(parts) < set(remote.parts())
    compact(remote, now_us=HOUR_US + day)
    assert not set(parts) & set(remote.parts())
    assert len(remote.parts()) == 6
    assert any(first in name for name in remote.names("compacted"))
    compact(remote, now_us=2 * HOUR_US + day)
    assert remote.parts() == []
    assert not any(first in name for name in remote.names("compacted"))


def test_parts_written_while_a_compaction_reads_are_not_lost(remote, objects, ledgers):
    fill(remote, ledgers)
    opened = objects.open_input_stream

    def writes_meanwhile(path):
        objects.open_input_stream = opened
        remote.write_part("late", "0", [ledgers.stored("k0", at=1_000, response=b"late")])
        return opened(path)

    objects.open_input_stream = writes_meanwhile
    compact(remote, grace=NOW)
    compact(remote, grace=NOW)
    assert ledgers.known(remote, ["k0"])["k0"].response == b"late"


@pytest.mark.parametrize("first", ["put", "open"])
def test_of_two_compactions_at_once_one_gives_up_and_no_answer_is_lost(
    remote, objects, ledgers, first
):
    fill(remote, ledgers)
    before = ledgers.known(remote, KEYS)
    inner = []
    method = {"put": "open_output_stream", "open": "open_input_stream"}[first]
    original = getattr(objects, method)

    def another_is_faster(*arguments):
        setattr(objects, method, original)
        inner.append(compact(remote, grace=NOW))
        inner.append(compact(remote, grace=NOW))
        return original(*arguments)

    setattr(objects, method, another_is_faster)
    assert compact(remote, grace=NOW).given_up
    assert (inner[0].parts_taken_in, inner[1].given_up) == (6, False)
    assert ledgers.known(remote, KEYS) == before
    compact(remote, grace=NOW)
    assert ledgers.known(remote, KEYS) == before


def test_of_two_changes_that_end_at_once_the_first_counts_and_no_answer_is_lost(
    remote, objects, ledgers
):
    fill(remote, ledgers)
    before = ledgers.known(remote, KEYS)
    original, inner = objects.create_file, []

    def another_ends(path, data):
        if not inner:
            inner.append(None)
            inner[0] = compact(remote, grace=NOW)
        return original(path, data)

    objects.create_file = another_ends
    assert compact(remote, grace=timedelta(days=1)).given_up
    assert not inner[0].given_up
    assert ledgers.known(remote, KEYS) == before
    compact(remote, grace=NOW)
    assert ledgers.known(remote, KEYS) == before


def test_a_commit_with_a_lost_response_counts_though_its_retry_finds_the_object(
    remote, objects, ledgers
):
    fill(remote, ledgers)
    before, original = ledgers.known(remote, KEYS), objects.create_file

    def tried_again(path, data):
        original(path, data)
        return original(path, data)

    objects.create_file = tried_again
    assert compact(remote, grace=NOW).parts_taken_in == 6
    assert ledgers.known(remote, KEYS) == before


def test_a_change_that_was_overtaken_gives_up_though_its_number_is_free_again(
    remote, objects, ledgers
):
    fill(remote, ledgers)
    original, others = objects.create_file, []

    def after_others(path, data):
        if not others:
            others.append(None)
            for seed in (1, 2):
                fill(remote, ledgers, seed=seed)
                compact(remote, grace=NOW)
                compact(remote, grace=NOW)
        return original(path, data)

    objects.create_file = after_others
    assert compact(remote, grace=NOW).given_up
    assert len([name for name in remote.names("compacted") if name.endswith("complete.json")]) == 1
    assert newest_generation(remote).number == 2
    assert ledgers.known(remote, KEYS)


@everywhere("folder", on_store=pytest.mark.proof)
def test_a_compaction_leaves_out_a_torn_part(folder, ledgers, caplog):
    fill(folder, ledgers, runs=1)
    ledgers.put(folder, "parts/run-0-0/torn.parquet", b"PAR1")
    assert compact(folder, grace=NOW).parts_taken_in == 2
    compact(folder, grace=NOW)
    assert folder.parts() == ["run-0-0/torn.parquet"]
    assert "torn.parquet is skipped" in caplog.text


@everywhere("folder", on_store=pytest.mark.proof)
def test_a_torn_compacted_file_stops_a_compaction_without_a_change(folder, ledgers):
    fill(folder, ledgers, runs=1)
    compact(folder, grace=NOW)
    torn = f"compacted/{newest_generation(folder).files[0].name}"
    data = ledgers.data_of(folder, torn)
    fill(folder, ledgers, runs=1, seed=1)
    before = ledgers.known(folder, KEYS)
    for length in range(0, len(data), 7):
        ledgers.put(folder, torn, data[:length])
        names = folder.names()
        with pytest.raises(LedgerError, match=r"cannot be read: .*Nothing was changed"):
            compact(folder, grace=NOW)
        assert folder.names() == names
    ledgers.put(folder, torn, data)
    assert ledgers.known(folder, KEYS) == before


def test_a_missing_file_of_a_generation_is_an_error_and_not_another_compaction(folder, ledgers):
    fill(folder, ledgers, runs=1)
    compact(folder, grace=NOW)
    folder.delete(f"compacted/{newest_generation(folder).files[0].name}")
    fill(folder, ledgers, runs=1, seed=1)
    with pytest.raises(LedgerError, match=r"cannot be read: .*Nothing was changed"):
        compact(folder, grace=NOW)


def test_a_full_disk_for_sorting_is_reported(folder, ledgers, monkeypatch):
    fill(folder, ledgers)

    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        LedgerError, match=r"No space left on device\. Make room there, or set TMPDIR"
    ):
        compact(folder)


@everywhere("folder", on_store=pytest.mark.proof)
def test_a_compaction_drops_only_records_that_change_no_answer(folder, ledgers):
    for seed in range(4):
        fill(folder, ledgers, seed=seed)
    before, written = ledgers.known(folder, KEYS), len(folder.read(folder.parts()))
    done = compact(folder, grace=NOW)
    assert ledgers.known(folder, KEYS) == before
    assert done.rows_dropped == written - done.rows
    assert done.rows <= 2 * len(KEYS)  # what is known of a key, and a mark beside it


@everywhere("folder", on_store=pytest.mark.proof)
def test_a_compaction_keeps_the_mark_of_a_call_with_an_unknown_outcome(folder, ledgers):
    folder.write_part("r", "0", [ledgers.stored("k", "ok", 1), ledgers.stored("k", "expired", 2)])
    folder.write_part(
        "r", "1", [ledgers.stored("k", "asked", 3), ledgers.stored("k", "timeout", 4)]
    )
    compact(folder, grace=NOW)
    assert ledgers.known(folder, ["k"]) == {"k": ledgers.stored("k", "asked", 3)}


@everywhere("folder", on_store=pytest.mark.proof)
def test_a_compaction_keeps_expired_answers_and_drops_old_refresh_marks(folder, ledgers):
    day = 24 * HOUR_US
    records = [
        ledgers.stored("old miss", "miss", day),
        ledgers.stored("void", at=day),
        ledgers.stored("void", "expired", 2 * day),
        ledgers.stored("asked", "asked", day),
    ]
    folder.write_part("r", "0", records)
    assert compact(folder, now_us=410 * day).rows == 2
    assert sorted(
        ledgers.known(folder, [record.key for record in records], ttl=Ttl(miss=None))
    ) == [
        "asked",
        "old miss",
    ]
    folder.write_part("r", "1", [ledgers.stored("void", "expired", 409 * day)])
    assert compact(folder, now_us=410 * day).rows == 3  # an answer of before may still be under way


@everywhere("folder", on_store=pytest.mark.proof)
def test_more_answers_than_fit_in_memory_are_sorted_in_several_passes(folder, ledgers, monkeypatch):
    """Here 1,000 at once, on the local disk, merged."""
    monkeypatch.setattr(compaction, "ROWS_IN_MEMORY", 1_000)
    choose = random.Random(2)
    numbers = list(range(20_000))
    choose.shuffle(numbers)
    for part in range(40):
        some = numbers[part * 500 : part * 500 + 500]
        folder.write_part(
            "r", str(part), [ledgers.stored(f"[{n}]", response=b"%d" % n) for n in some]
        )
    assert compact(folder, grace=NOW).rows == 20_000
    found = ledgers.known(folder, [f"[{n}]" for n in range(0, 20_000, 7)])
    assert len(found) == 2858
    assert all(key == f"[{int(record.response)}]" for key, record in found.items())
