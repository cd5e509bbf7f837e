"""The journal of a part: what came back before a kill is read, up to the torn end of the file."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import LedgerError
from jobs.ledger.answers import OUTCOMES, StoredAnswer, as_answers
from jobs.ledger.changes.compaction import Compacted, compact
from jobs.ledger.changes.erasure import forget
from jobs.ledger.generations import contents
from jobs.ledger.journal import JOURNAL_FORMAT, Journal
from jobs.ledger.scan import KeySet, matches
from jobs.ledger.store import FORMAT_KEY, LedgerFolder
from jobs.ledger.writing.writer import LedgerWriter

NEVER = 3600.0  # s
GOLDEN = Path(__file__).parent / "golden"
ANSWERS = [
    StoredAnswer('["JFK",1]', "ok", b'{"temp_c":3.9}', 1, "run-1"),
    StoredAnswer('["LGA",1]', "miss", None, 2, "run-1"),
    StoredAnswer('["Z\u00fcrich",1]', "error", b'"500"', 3, "run-1"),
]


def columns(answers):
    return tuple(zip(*answers, strict=True))


def write(folder, answers, name="0-0-00000"):
    """A journal that a killed process left, an answer at a time. Returns its path."""
    journal = folder.journal("run-1", name)
    for answer in answers:
        journal.append(columns([answer]))
    return Path(folder.path) / "parts" / "run-1" / f"{name}.journal"


def test_an_answer_is_in_the_journal_before_its_part_is_stored_and_the_part_replaces_the_journal(
    folder, wait_for
):
    writer = LedgerWriter(folder, "run-1", "3-0", flush_seconds=NEVER)
    for number in range(3):
        writer.put((number,), "ok", b"%d" % number, number)
        wait_for(lambda wanted=number + 1: len(folder.read(folder.parts())) == wanted, seconds=5.0)
    (name,) = folder.parts()
    assert name.endswith(".journal")
    assert writer.stored == 0, "a journal is for a kill only"
    writer.close()
    assert folder.parts() == [name.replace(".journal", ".parquet")]
    assert [answer.response for answer in as_answers(folder.read(folder.parts()))] == [
        b"0",
        b"1",
        b"2",
    ]


@pytest.mark.slow
def test_a_journal_cut_at_any_byte_has_the_records_before_the_cut(folder):
    path = write(folder, ANSWERS)
    whole, before = path.read_bytes(), 0
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        found = as_answers(folder.read(folder.parts()))
        assert found == ANSWERS[: len(found)]
        assert len(found) >= before
        before = len(found)
    assert before == 3


def test_a_journal_of_a_newer_format_is_an_error_and_a_foreign_file_is_skipped(folder, caplog):
    path = Path(folder.path, "parts", "run-1", "0-0-00000.journal")
    Journal(path, {FORMAT_KEY: str(JOURNAL_FORMAT + 1).encode()}).append(columns(ANSWERS))
    with pytest.raises(
        LedgerError,
        match=(
            r"0-0-00000.journal has format 3, and this Tidegate "
            r"reads up to 2: upgrade"
        ),
    ):
        folder.read(folder.parts())
    Journal(path, {}).append(columns(ANSWERS))
    assert not len(folder.read(folder.parts()))
    assert "not a Tidegate ledger file" in caplog.text


@pytest.mark.parametrize("golden", ["journal_1", "journal_2"])
def test_a_journal_of_formats_1_and_2_is_read(golden):
    folder = LedgerFolder(str(GOLDEN / golden), "weather", "0123456789abcdef")
    assert as_answers(folder.read(folder.parts())) == ANSWERS


@given(
    answers=st.lists(
        st.builds(
            StoredAnswer,
            st.text(), st.sampled_from(OUTCOMES), st.none() | st.text().map(str.encode),
            st.integers(-(1 << 63), (1 << 63) - 1), st.text(),
        ),
        min_size=1,
    )
)  # fmt: skip
def test_a_journal_keeps_each_record_exactly(answers):
    with tempfile.TemporaryDirectory() as root:
        folder = LedgerFolder(root, "weather", "f")
        folder.journal("run-1", "0-0-00000").append(columns(answers))
        assert as_answers(folder.read(folder.parts())) == answers


def test_answers_are_found_in_the_part_that_replaced_their_journal_after_the_listing(folder):
    write(folder, ANSWERS)
    listed, wanted = contents(folder), KeySet(pa.array([ANSWERS[0].key]))
    Path(folder.path, "parts", *listed.parts).unlink()
    with pytest.raises(FileNotFoundError):  # the reader lists again
        list(matches(folder, listed, wanted))
    folder.write_part("run-1", "0-0-00000", ANSWERS)
    assert sum(map(len, matches(folder, listed, wanted))) == 1
    assert as_answers(folder.read(listed.parts)) == ANSWERS


def test_answers_are_found_whose_journal_becomes_a_part_during_the_listing(folder, monkeypatch):
    path, read = write(folder, ANSWERS), LedgerFolder._listed

    def listed(self, folder_path, **options):
        """Reads the names in the folder, then looks at each file."""
        found = read(self, folder_path, **options)
        if path.exists():
            folder.write_part("run-1", "0-0-00000", ANSWERS)
            path.unlink()
        return [info for info in found if Path(info.path).exists()]

    monkeypatch.setattr(LedgerFolder, "_listed", listed)
    assert as_answers(folder.read(folder.parts())) == ANSWERS


def test_compaction_includes_a_journal(folder):
    path = write(folder, ANSWERS)
    day_us = 86_400_000_000
    changed = path.stat().st_mtime_ns // 1000 + 1
    assert compact(folder, now_us=changed + day_us).parts_taken_in == 1
    compact(folder, now_us=changed + 2 * day_us)
    assert folder.parts() == []


def test_answers_written_to_a_journal_after_a_compaction_are_found_after_a_kill(folder):
    journal = folder.journal("run-1", "0-0-00000")
    journal.append(columns(ANSWERS[:1]))
    assert compact(folder) == Compacted()
    journal.append(columns(ANSWERS[1:]))
    there = contents(folder)
    assert as_answers(folder.read(there.parts)) == ANSWERS


@pytest.mark.parametrize("others", [['["LGA",1]'], []])
def test_no_byte_of_a_forgotten_key_stays_in_a_journal_or_its_torn_end(folder, others):
    path = write(
        folder, [*ANSWERS, StoredAnswer('["secret"]', "ok", b'"of the secret"', 4, "run-1")]
    )
    path.write_bytes(path.read_bytes()[:-20])
    assert b"secret" in path.read_bytes()
    forget(folder, ['["secret"]', *others])
    assert not [
        path
        for path in Path(folder.path).rglob("*")
        if path.is_file() and b"secret" in path.read_bytes()
    ]
    (file,) = contents(folder).generation.files
    with folder.open(f"compacted/{file.name}") as opened:
        kept = [answer.key for answer in as_answers(opened.read())]
    assert kept == [answer.key for answer in ANSWERS if answer.key not in others]


def test_a_disk_that_refuses_the_journal_does_not_stop_a_run(folder, monkeypatch, wait_for, caplog):
    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "append", fails)
    writer = LedgerWriter(folder, "run-1", "3-0", flush_seconds=NEVER)
    writer.put((1,), "ok", b"1", 1)
    wait_for(lambda: "no journal" in caplog.text)
    wait_for(lambda: writer.stored == 1)  # a part is tried at once, as the disk may be full
    writer.put((2,), "ok", b"2", 2)
    writer.close()
    assert [answer.response for answer in as_answers(folder.read(folder.parts()))] == [b"1", b"2"]


@pytest.mark.process
def test_an_answer_is_on_disk_before_its_part_is_stored_and_survives_a_kill(tmp_path, wait_for):
    code = f"""
import time
from jobs.ledger.store import LedgerFolder
from jobs.ledger.writing.writer import LedgerWriter
writer = LedgerWriter(LedgerFolder({str(tmp_path)!r}, "weather", "f"), "run-1", "0-0", flush_seconds={NEVER})
for number in range(150):
    writer.put((number,), "ok", b"%d" % number, number)
time.sleep({NEVER})
"""
    folder = LedgerFolder(str(tmp_path), "weather", "f")
    with subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3]) as process:
        try:
            wait_for(lambda: len(folder.read(folder.parts())) == 150)
        finally:
            os.kill(process.pid, signal.SIGKILL)
    answers = as_answers(folder.read(folder.parts()))
    assert sorted(answer.response for answer in answers) == sorted(b"%d" % n for n in range(150))
