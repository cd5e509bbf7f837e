"""Parts on disk: stored whole, or not believed."""

import contextlib
import json
import pickle
import resource
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.errors import LedgerError
from jobs.ledger import store
from jobs.ledger.answers import SCHEMA, StoredAnswer, as_answers, as_table
from jobs.ledger.store import LedgerFolder
from tests.support import ledgers
from tests.support.places import everywhere

GOLDEN = Path(__file__).parent / "golden"
ANSWERS = [
    StoredAnswer('["JFK",1]', "ok", b'{"temp_c":3.9}', 1, "run-1"),
    StoredAnswer('["LGA",1]', "miss", None, 2, "run-1"),
    StoredAnswer('["Z\u00fcrich",1]', "error", b'"500"', 3, "run-1"),
]


def data_of(folder, part):
    return ledgers.data_of(folder, f"parts/{part}")


def put(folder, part, data):
    ledgers.put(folder, f"parts/{part}", data)


@everywhere("folder")
def test_stored_answers_are_read_back_exactly_and_in_order(folder):
    part = folder.write_part("run-1", "0-0", ANSWERS)
    assert folder.parts() == [part] == ["run-1/0-0.parquet"]
    assert as_answers(folder.read([part])) == ANSWERS


def test_records_survive_the_conversion_to_arrow_and_back():
    assert as_answers(as_table(ANSWERS)) == ANSWERS
    assert as_table([]).schema == SCHEMA


def test_a_missing_ledger_folder_is_empty_and_reading_does_not_create_it(folder, tmp_path):
    assert folder.is_empty()
    assert folder.parts() == []
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_folder_that_another_run_creates_meanwhile_is_listed(folder):
    made = Path(folder.path, "parts", "r1")
    made.parent.mkdir(parents=True)
    listed = threading.Event()

    def make_and_remove():
        while not listed.is_set():
            made.mkdir()
            made.rmdir()
            # without it five listings in a row can fail where files are in memory
            listed.wait(0.0001)

    other = threading.Thread(target=make_and_remove)
    other.start()
    try:
        # Arrow fails at one in 80 to 300
        assert all(folder.names("parts/r1") == [] for _ in range(20_000))
    finally:
        listed.set()
        other.join()


@pytest.mark.parametrize(
    "root", ["ledger", "./ledger", "{here}/ledger", "file://{here}/ledger", "{here}/ledger/"]
)
def test_a_root_may_be_relative_absolute_or_a_url(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    LedgerFolder(root.format(here=tmp_path), "weather", "f").write_part("run-1", "0-0", ANSWERS)
    assert (tmp_path / "ledger/weather/f/parts/run-1/0-0.parquet").is_file()
    assert LedgerFolder(str(tmp_path / "ledger"), "weather", "f").parts() == ["run-1/0-0.parquet"]


def test_a_part_is_put_on_an_object_store_in_one_request(remote, objects):
    part = remote.write_part("run-1", "0-0", ANSWERS)
    assert objects.changes == [("put", "bucket/weather/0123456789abcdef/parts/run-1/0-0.parquet")]
    assert as_answers(remote.read(remote.parts())) == ANSWERS
    assert remote.parts() == [part]


@everywhere("folder")
def test_parts_are_listed_by_run_and_by_the_task_that_wrote_them(folder):
    for run_id, name in [("a", "3-0-x"), ("a", "3-1-y"), ("a", "30-0-z"), ("b", "3-0-x")]:
        folder.write_part(run_id, name, ANSWERS)
    assert folder.parts("a") == ["a/3-0-x.parquet", "a/3-1-y.parquet", "a/30-0-z.parquet"]
    assert folder.parts("a", "3-") == ["a/3-0-x.parquet", "a/3-1-y.parquet"]
    assert folder.parts("a", "3-1-") == ["a/3-1-y.parquet"]
    assert folder.parts("c") == []


@everywhere("folder", on_store=pytest.mark.proof)
@pytest.mark.slow
def test_a_part_truncated_at_any_byte_is_skipped_with_a_warning_and_the_others_are_read(
    folder, caplog
):
    torn, whole = (
        folder.write_part("run-1", "0-0", ANSWERS),
        folder.write_part("run-1", "0-1", ANSWERS[:1]),
    )
    data = data_of(folder, torn)
    for length in range(len(data)):
        put(folder, torn, data[:length])
        caplog.clear()
        assert as_answers(folder.read([torn, whole])) == ANSWERS[:1], length
        assert [record.getMessage().split(" is skipped: ")[0] for record in caplog.records] == [
            f"ledger {folder.path}/parts/{torn}"
        ]
    put(folder, torn, data)
    assert as_answers(folder.read([torn, whole])) == ANSWERS + ANSWERS[:1]


@everywhere("folder", on_store=pytest.mark.proof)
@pytest.mark.slow
def test_a_part_with_a_changed_byte_gives_its_true_answers_or_none(folder):
    part = folder.write_part("run-1", "0-0", ANSWERS)
    data = data_of(folder, part)
    for place in range(len(data)):
        put(folder, part, data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        with contextlib.suppress(LedgerError):  # the changed byte was that of the format
            assert as_answers(folder.read([part])) in ([], ANSWERS), place


@everywhere("folder")
def test_a_part_with_a_hole_of_zeros_is_skipped(folder):
    part = folder.write_part(
        "run-1", "0-0", [StoredAnswer(f"[{n}]", "ok", b"%d" % n, n, "r") for n in range(5_000)]
    )
    data = bytearray(data_of(folder, part))
    data[4096:8192] = bytes(4096)
    put(folder, part, data)
    assert folder.read([part]).num_rows == 0


@everywhere("folder")
@pytest.mark.parametrize("data", [b"", b"a,b\n1,2\n", b"PAR1", b"PAR1PAR1", b"\x00" * 500])
def test_a_file_that_is_not_parquet_is_skipped_with_a_warning(folder, caplog, data):
    part = folder.write_part("run-1", "0-0", ANSWERS)
    put(folder, "run-1/notes.parquet", data)
    put(folder, "run-1/notes.txt", data)
    assert folder.parts() == ["run-1/0-0.parquet", "run-1/notes.parquet"]
    assert as_answers(folder.read(folder.parts())) == ANSWERS
    assert len(caplog.records) == 1
    assert part == "run-1/0-0.parquet"


@everywhere("folder")
def test_a_foreign_parquet_file_is_skipped_with_a_warning(folder, caplog):
    folder.write_part("run-1", "0-0", ANSWERS)
    sink = pa.BufferOutputStream()
    pq.write_table(as_table(ANSWERS), sink)
    put(folder, "run-1/export.parquet", sink.getvalue())
    assert as_answers(folder.read(folder.parts())) == ANSWERS
    assert "not a Tidegate ledger file" in caplog.text


@everywhere("folder")
def test_a_ledger_of_a_newer_format_is_reported_in_one_sentence(folder, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(store, "FORMAT", 2)
        part = folder.write_part("run-1", "0-0", ANSWERS)
    with pytest.raises(LedgerError) as stopped:
        folder.read([part])
    assert str(stopped.value) == (
        f"ledger {folder.root!r}: parts/{part} has format 2, and this Tidegate reads up to 1: "
        "upgrade it, or give it a ledger of its own."
    )


def test_a_ledger_of_format_1_can_be_read(tmp_path, ledgers):
    shutil.copytree(GOLDEN / "format_1", tmp_path / "ledger")
    folder = LedgerFolder(str(tmp_path / "ledger"), "weather", "0123456789abcdef")
    found = ledgers.known(folder, ['["JFK",1]', '["LGA",1]', '["EWR",1]', '["Z\u00fcrich",1]'])
    at = 1_700_000_000_000_000
    assert list(found.values()) == [
        StoredAnswer('["EWR",1]', "error", b'"500 Internal Server Error"', at + 4, "run-2"),
        StoredAnswer(
            '["JFK",1]', "ok", b'{"temp_c":4.0,"at":{"$date":"2013-01-11"}}', at + 3, "run-2"
        ),
        StoredAnswer('["Z\u00fcrich",1]', "timeout", None, at + 5, "run-2"),
    ]


def test_pyarrow_alone_reads_a_part_with_the_types_of_the_guide(folder):
    part = folder.write_part("run-1", "0-0", ANSWERS)
    table = pq.read_table(Path(folder.path, "parts", part))
    assert {field.name: str(field.type) for field in table.schema} == {
        "key": "string",
        "outcome": "string",
        "response": "string",
        "answered_at": "timestamp[us, tz=UTC]",
        "run_id": "string",
    }
    assert json.loads(table["response"][0].as_py()) == {"temp_c": 3.9}


# -- a disk that does not take it
# --------------------------------------------------------------------------------------
WRITING = """
import sys
from jobs.errors import LedgerError
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.store import LedgerFolder

folder = LedgerFolder(sys.argv[1], "weather", "f")
for part in range(1000):
    try:
        answers = [
            StoredAnswer(f"[{part},{n}]", "ok", b'"%d"' % hash((part, n)), 1, "run-1") for n in range(1000 * (part + 1))
        ]
        folder.write_part("run-1", f"{part:04d}", answers)
    except LedgerError as error:
        print(part, error)
        break
"""


def written_until_full(arguments, **options):
    done = subprocess.run(
        [*arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
        **options,
    )
    parts, message = done.stdout.strip().split(" ", 1)
    return int(parts), message


@pytest.mark.process
def test_a_file_that_grows_too_large_is_reported_and_earlier_answers_stay_stored(tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    parts, message = written_until_full(
        [sys.executable, "-c", WRITING, str(tmp_path)], preexec_fn=limit
    )
    assert message.startswith(f"ledger {str(tmp_path)!r}: answers cannot be stored: ")
    assert message.endswith(
        "Free some space or fix the permissions, then rerun: what was stored before is kept and "
        "used."
    )
    folder = LedgerFolder(str(tmp_path), "weather", "f")
    assert len(folder.parts()) == parts >= 1
    assert folder.read(folder.parts()).num_rows == sum(1000 * (part + 1) for part in range(parts))


def can_mount():
    command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"]
    return (
        shutil.which("unshare")
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not can_mount(), reason="this machine lets nobody mount a small disk")
@pytest.mark.process
def test_a_full_disk_is_reported_and_earlier_answers_stay_stored(tmp_path):
    small, kept = tmp_path / "small", tmp_path / "kept"
    small.mkdir()
    writing = shlex.join([sys.executable, "-c", WRITING, str(small)])
    script = f"mount -t tmpfs -o size=200k tmpfs {small} && {writing} && cp -r {small} {kept}"
    parts, message = written_until_full(["unshare", "-rm", "sh", "-c", script])
    assert "No space left on device" in message
    folder = LedgerFolder(str(kept), "weather", "f")
    assert len(folder.parts()) == parts >= 1
    assert folder.read(folder.parts()).num_rows == sum(1000 * (part + 1) for part in range(parts))


def test_a_ledger_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    folder = LedgerFolder(str(tmp_path / "file"), "weather", "f")
    with pytest.raises(LedgerError, match="answers cannot be stored: "):
        folder.write_part("run-1", "0-0", ANSWERS)


def test_a_url_of_an_unknown_kind_is_reported():
    with pytest.raises(LedgerError, match=r"^ledger 'nowhere://x': it cannot be opened: .*nowhere"):
        LedgerFolder("nowhere://x", "weather", "f").parts()


def test_a_filesystem_that_fails_is_not_taken_for_a_torn_part(remote, objects, monkeypatch):
    part = remote.write_part("run-1", "0-0", ANSWERS)

    def fails(path):
        raise OSError("503 Slow Down")

    monkeypatch.setattr(objects, "open_input_stream", fails)
    with pytest.raises(
        LedgerError,
        match=(
            rf"parts/{part} cannot be read: .*503 Slow Down.* "
            r"Nothing was called"
        ),
    ):
        remote.read([part])


def test_a_ledger_folder_can_be_pickled(folder):
    folder.write_part("run-1", "0-0", ANSWERS)
    assert pickle.loads(pickle.dumps(folder)).parts() == folder.parts()


def test_a_replacement_that_fails_leaves_no_draft(folder):
    Path(folder.path, "note").mkdir(parents=True)  # in the file's place
    with pytest.raises(LedgerError, match="answers cannot be stored: "):
        folder.replace("note", b"new")
    assert folder.names() == []
