"""The answers of a run in one file that is searched by key."""

import numpy as np
import pyarrow as pa
import pytest

from jobs.declare.ledger_settings import Ttl
from jobs.errors import LedgerError
from jobs.ledger import keyed_file, ledger_files
from jobs.ledger.answers import StoredAnswer, as_table
from jobs.ledger.index import AnswerIndex, write_index
from jobs.ledger.plan import LedgerPlan
from jobs.run.keys.hits import with_index


def answers(count):
    return [
        StoredAnswer(
            f"[{n}]",
            "ok" if n % 3 else "miss",
            b'{"n":%d}' % n if n % 3 else None,
            n,
            f"run-{n % 2}",
        )
        for n in range(count)
    ]


@pytest.fixture
def index(tmp_path):
    def make(records):
        half = len(records) // 2
        chunks = [as_table(records[:half]), as_table(records[half:])]
        write_index(str(tmp_path / "index.arrow"), pa.concat_tables(chunks))
        return AnswerIndex.open(str(tmp_path / "index.arrow"))

    return make


def found(index, texts):
    """What is stored of each key, in the order of the keys."""
    lines = index.lines(pa.array(texts, pa.string()))
    stored = iter(index.answers(lines[lines >= 0]))
    return [next(stored) if line >= 0 else None for line in lines]


@pytest.mark.parametrize("at_once", [keyed_file.BYTES_AT_ONCE, 5_000])
def test_each_key_is_found_with_its_record_only(index, monkeypatch, at_once):
    monkeypatch.setattr(keyed_file, "BYTES_AT_ONCE", at_once)
    monkeypatch.setattr(keyed_file, "ROW_BYTES", 0)
    records = answers(1000)
    one = index(records)
    assert len(one) == 1000
    assert found(one, [record.key for record in records]) == records
    assert found(one, ["[1000]", "[5]", "", "[5]", "5"]) == [
        None,
        records[5],
        None,
        records[5],
        None,
    ]
    assert found(one, []) == []


def test_an_empty_index_finds_no_key(index):
    assert found(index([]), ["[1]"]) == [None]


@pytest.mark.parametrize("kinds", [1, 3])
def test_keys_whose_hashes_are_equal_are_distinguished_by_their_text(index, monkeypatch, kinds):
    def collide(texts):
        return np.array([len(text) % kinds for text in texts], dtype=np.uint64)

    monkeypatch.setattr(keyed_file, "key_hashes", collide)
    records = answers(200)
    one = index(records)
    assert found(one, [record.key for record in records]) == records
    assert found(one, ["[200]", "x", "", "[3]"]) == [None, None, None, records[3]]


def test_a_torn_or_missing_index_is_reported(tmp_path, index):
    index(answers(10))
    data = (tmp_path / "index.arrow").read_bytes()
    for length in (0, 10, len(data) // 2, len(data) - 1):
        (tmp_path / "index.arrow").write_bytes(data[:length])
        with pytest.raises(LedgerError, match=r"index.arrow': "):
            AnswerIndex.open(str(tmp_path / "index.arrow"))
    with pytest.raises(LedgerError, match=r"nothing.arrow': "):
        AnswerIndex.open(str(tmp_path / "nothing.arrow"))


def test_an_index_without_hashes_is_reported(tmp_path):
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), pa.schema([("key", pa.string())])):
        pass
    with pytest.raises(LedgerError, match=r"a.arrow': "):
        AnswerIndex.open(str(tmp_path / "a.arrow"))


@pytest.mark.parametrize(
    ("place", "cure"),
    [("/dev/full", "Free some space there"), ("/dev/null/index.arrow", "Make it writable")],
)
def test_an_index_that_cannot_be_written_is_reported_with_the_cure(place, cure):
    with pytest.raises(LedgerError, match=rf"written to '{place}': .*\. {cure} and start again\."):
        write_index(place, as_table(answers(10)))


def test_an_index_in_an_object_store_is_read_from_a_local_copy(objects, monkeypatch):
    monkeypatch.setattr(
        keyed_file,
        "open_filesystem",
        lambda path: (ledger_files.open_filesystem("bucket")[0], path),
    )
    records = answers(10)
    write_index("bucket/index.arrow", as_table(records))
    one = AnswerIndex.open("bucket/index.arrow")
    objects.objects.clear()
    assert found(one, [record.key for record in records]) == records


@pytest.mark.parametrize("end", ["", "/", "?region=eu", "/?region=eu&scheme=http"])
def test_each_lookup_has_a_separate_index_below_any_url(tmp_path, end):
    root = f"file://{tmp_path}/a%20ledger{end}"
    plans = [
        LedgerPlan(root, name, "f" * 16, "run", Ttl(), 200, 0.5) for name in ("weather", "plane")
    ]
    indexed = [
        with_index(plan, as_table(answers(number)))
        for plan, number in zip(plans, (1, 2), strict=True)
    ]
    assert [len(AnswerIndex.open(plan.index)) for plan in indexed] == [1, 2]
    for plan in plans:
        assert [name[:15] for name in plan.open_folder().names()] == ["runs/run/index-"]


def test_a_search_of_an_index_allocates_memory_only_for_found_keys(tmp_path):
    """100 MB of answers, of which 2,000 are looked for: the others stay in the mapped file."""
    count = 10_000
    records = pa.table(
        {
            "key": [f"[{n}]" for n in range(count)],
            "outcome": ["ok"] * count,
            "response": ["x" * 10_000] * count,
            "answered_at": pa.array(range(count), pa.timestamp("us", "UTC")),
            "run_id": ["r"] * count,
        }
    )
    write_index(str(tmp_path / "index.arrow"), records)
    del records
    allocated = pa.total_allocated_bytes()
    one = AnswerIndex.open(str(tmp_path / "index.arrow"))
    for start in range(0, 2_000, 100):
        assert len(found(one, [f"[{n}]" for n in range(start, start + 100)])) == 100
        assert pa.total_allocated_bytes() - allocated < 5_000_000
