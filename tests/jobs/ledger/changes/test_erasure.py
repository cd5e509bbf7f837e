"""Keys taken out of the ledger: no byte of them stays."""

import itertools
import os
import random
import time
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.commands.expiry import expire_keys
from jobs.errors import LedgerError
from jobs.ledger import store
from jobs.ledger.answers import as_table
from jobs.ledger.changes import compaction
from jobs.ledger.changes.compaction import compact
from jobs.ledger.changes.erasure import Forgotten, forget
from jobs.ledger.expired_marks import expired_marks
from jobs.ledger.generations import newest_generation
from jobs.ledger.index import write_index
from jobs.ledger.store import LedgerFolder
from tests.support.places import everywhere

NOW = timedelta(0)
KEYS = [f'["Person {number:03d}"]' for number in range(200)]
GONE = KEYS[50:60]


@pytest.fixture(autouse=True)
def plain_bytes(monkeypatch):
    """Without compression, so that a key or an answer that is in a file can be seen in its
    bytes.
    """
    monkeypatch.setattr(store, "COMPRESSION", "none")


def records(ledgers, keys, at=1):
    return [
        ledgers.stored(key, at=at, response=f'"Secret of {key[2:-2]}"'.encode()) for key in keys
    ]


def fill(folder, ledgers):
    """KEYS in compacted files (small ones), in parts taken in and kept, in parts of later, and in
    an index.
    """
    folder.write_part("run-1", "0", records(ledgers, KEYS))
    compact(folder)
    folder.write_part("run-2", "0", records(ledgers, KEYS[:100], 2))
    compact(folder)
    folder.write_part("run-3", "0-0", records(ledgers, KEYS[50:150], 3))
    folder.write_part("run-3", "0-1", records(ledgers, KEYS[150:], 3))
    folder.write_part("run-3", "0-2", records(ledgers, GONE, 3))


def names_in(data):
    return {key for key in KEYS if key[2:-2].encode() in data}


@everywhere("folder", on_store=pytest.mark.proof)
def test_an_erasure_leaves_no_byte_of_its_keys_and_keeps_every_other_answer(
    folder, ledgers, tmp_path
):
    fill(folder, ledgers)
    for name, keys in (("index", GONE[:1]), ("other", KEYS[:1])):
        local = str(tmp_path / f"{name}.arrow")
        write_index(local, as_table(records(ledgers, keys)))
        ledgers.put(folder, f"runs/run-9/{name}.arrow", Path(local).read_bytes())
    before = ledgers.known(folder, KEYS)
    assert len(forget(folder, [*GONE, "never stored"]).keys) == 10
    for name in folder.names():
        assert not names_in(ledgers.data_of(folder, name)) & set(GONE), name
    assert ledgers.known(folder, KEYS) == {
        key: record for key, record in before.items() if key not in GONE
    }
    assert folder.names("runs") == ["runs/run-9/other.arrow"]
    assert forget(folder, GONE) == Forgotten(frozenset(), 0)


@everywhere("folder", on_store=pytest.mark.proof)
def test_parts_copied_elsewhere_below_the_folder_lose_the_keys_too(folder, ledgers):
    fill(folder, ledgers)
    data = ledgers.data_of(folder, "parts/run-3/0-0.parquet")
    for copy in ("backup/run-3/0-0.parquet", "copy.parquet"):
        ledgers.put(folder, f"parts/{copy}", data)
    before = ledgers.known(folder, KEYS)
    assert len(forget(folder, GONE).keys) == 10
    assert ledgers.known(folder, KEYS) == {
        key: record for key, record in before.items() if key not in GONE
    }


@everywhere("folder", on_store=pytest.mark.proof)
def test_an_empty_ledger_and_keys_that_are_not_there_are_no_error(folder, ledgers):
    assert forget(folder, GONE) == Forgotten(frozenset(), 0)
    fill(folder, ledgers)
    assert forget(folder, ["x"]) == Forgotten(frozenset(), 0)
    assert len(ledgers.known(folder, KEYS)) == 200


@everywhere("folder", on_store=pytest.mark.proof)
def test_all_keys_can_be_forgotten(folder, ledgers):
    fill(folder, ledgers)
    assert len(forget(folder, KEYS).keys) == 200
    assert folder.parts() == []
    assert ledgers.known(folder, KEYS) == {}
    folder.write_part("run-4", "0", records(ledgers, KEYS[:1]))
    compact(folder, grace=NOW)
    assert len(ledgers.known(folder, KEYS)) == 1


@everywhere("folder", on_store=pytest.mark.proof)
def test_an_erasure_deletes_torn_and_unfinished_parts_and_keeps_a_foreign_file(folder, ledgers):
    fill(folder, ledgers)
    torn, foreign = "parts/run-3/0-1.parquet", "parts/run-3/notes.txt"
    unfinished = "parts/run-3/.0-2.parquet.0a1b2c3d.draft"
    ledgers.put(folder, unfinished, ledgers.data_of(folder, torn))
    ledgers.put(folder, torn, ledgers.data_of(folder, torn)[:-1])
    ledgers.put(folder, foreign, b"mine")
    forget(folder, GONE)
    assert {torn, unfinished, foreign} & set(folder.names()) == {foreign}


def test_a_missing_file_of_a_generation_is_named_and_no_compaction_is_blamed(folder, ledgers):
    fill(folder, ledgers)
    compact(folder, grace=NOW)
    (file,) = newest_generation(folder).files
    folder.delete(f"compacted/{file.name}")
    with pytest.raises(LedgerError, match=f"its file is missing: .*{file.name}.* restore the file"):
        forget(folder, GONE)


def test_an_erasure_deletes_the_draft_of_a_killed_intent_and_keeps_another_draft(folder, ledgers):
    draft, other = "jobs/a1/.intent.parquet.0a1b2c3d.draft", "jobs/a1/.done.json.0a1b2c3d.draft"
    for name in (draft, other):
        ledgers.put(folder, name, b"a key")
    forget(folder, GONE)
    assert {draft, other} & set(folder.names()) == {other}


def test_a_refresh_whose_marks_a_forget_deletes_is_reported(tmp_path, ledgers, monkeypatch):
    folder = LedgerFolder(str(tmp_path), "score", "f" * 16)
    fill(folder, ledgers)
    forgets = [forget]

    def sync(handle):
        """Forget once, when the marks are written under another name."""
        if forgets and list(Path(folder.path, "parts").rglob("*.draft")):
            forgets.pop()(folder, GONE)

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(LedgerError, match="cannot be stored"):
        expire_keys(folder, KEYS[-3:])
    expire_keys(folder, KEYS[-3:])
    assert expired_marks(folder)["key"].to_pylist() == KEYS[-3:]


@pytest.mark.parametrize("minutes", [1, 15])
@pytest.mark.parametrize("torn", ["parts/run-3/0-1.parquet", "parts/run-3/.0-3.0a1b2c3d.draft"])
def test_a_torn_part_of_a_living_run_stays_and_the_user_is_informed(
    tmp_path, ledgers, torn, minutes, caplog
):
    folder = LedgerFolder(str(tmp_path), "score", "f" * 16)
    fill(folder, ledgers)
    ledgers.put(folder, torn, ledgers.data_of(folder, "parts/run-3/0-1.parquet")[:-1])
    ledgers.put(folder, "runs/run-3/run.json", b'{"run_id": "run-3", "host": "another", "pid": 1}')
    beat = time.time() - 60 * minutes
    os.utime(f"{folder.path}/runs/run-3/run.json", (beat, beat))
    forget(folder, GONE)
    stays = minutes == 1
    assert (torn in folder.names()) == stays
    assert ("run run-3 may be writing it; forget the keys again" in caplog.text) == stays


def test_a_forget_can_be_repeated_after_a_crash_at_any_step(remote, objects, ledgers):
    fill(remote, ledgers)
    before, start = ledgers.known(remote, KEYS), dict(objects.objects)
    left = {key: record for key, record in before.items() if key not in GONE}
    crashes = 0
    for step in itertools.count():
        objects.objects.clear()
        objects.objects.update(start)
        objects.changes_left = step
        try:
            forget(remote, GONE)
        except LedgerError:
            crashes += 1
            objects.changes_left = None
            now = ledgers.known(remote, KEYS)
            assert {key: record for key, record in now.items() if key not in GONE} == left
            forget(remote, GONE)
        assert ledgers.known(remote, KEYS) == left
        assert not set().union(*map(names_in, objects.objects.values())) & set(GONE)
        if objects.changes_left is not None:
            break
    assert crashes >= 8


def test_a_compaction_that_began_before_does_not_bring_the_keys_back(remote, objects, ledgers):
    fill(remote, ledgers)
    opened = objects.open_output_stream

    def forgets_meanwhile(path, metadata):
        objects.open_output_stream = opened
        forget(remote, GONE)
        return opened(path, metadata)

    objects.open_output_stream = forgets_meanwhile
    assert compact(remote).given_up
    assert sorted(ledgers.known(remote, KEYS)) == sorted(set(KEYS) - set(GONE))
    assert not set().union(*map(names_in, objects.objects.values())) & set(GONE)


def test_a_compaction_that_commits_first_makes_a_forget_start_again(remote, objects, ledgers):
    fill(remote, ledgers)
    opened = objects.open_output_stream

    def compacts_meanwhile(path, metadata):
        objects.open_output_stream = opened
        compact(remote)
        return opened(path, metadata)

    objects.open_output_stream = compacts_meanwhile
    forget(remote, GONE)
    assert sorted(ledgers.known(remote, KEYS)) == sorted(set(KEYS) - set(GONE))
    assert not set().union(*map(names_in, objects.objects.values())) & set(GONE)


@everywhere("folder", on_store=pytest.mark.proof)
def test_only_files_with_a_forgotten_key_are_rewritten(folder, ledgers, monkeypatch):
    monkeypatch.setattr(compaction, "ROWS_PER_FILE", 1024)
    folder.write_part("r", "0", [ledgers.stored(f"k{n:05d}") for n in range(10_240)])
    compact(folder, grace=NOW)
    files = set(folder.names("compacted"))
    done = forget(
        folder, [f"k{choice:05d}" for choice in random.Random(1).sample(range(1_024), 20)]
    )
    assert len(done.keys) == 20
    assert len(set(folder.names("compacted")) & files) == 9
