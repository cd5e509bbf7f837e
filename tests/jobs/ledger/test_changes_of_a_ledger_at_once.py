"""Every pair of changes of a ledger: one stops at each of its file operations, and the other one
runs whole there.
"""

import itertools
import os
import shutil
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.commands.expiry import expire_keys
from jobs.declare.ledger_settings import FOR_EVER, Ttl
from jobs.ledger import store
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.changes import compaction
from jobs.ledger.changes.compaction import compact
from jobs.ledger.changes.erasure import forget
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.selection import select
from jobs.ledger.store import LedgerFolder
from jobs.ledger.working_folders import announce, remove_abandoned
from jobs.run.keys.kept_keys import keep_keys
from jobs.run.keys.registration import look_at_ledger, unregister
from tests.support.failing_storage import FailingStorage, put_under

OLD = [f'["old {number}"]' for number in range(8)]
NOWHERE = '["somebody else"]'


class SteppedStorage(FailingStorage):
    """Calls `between` before its operation of this number, once."""

    def __init__(self, kind):
        super().__init__(kind, applied=False)
        self.stop_at(None, None)

    def stop_at(self, number, between):
        self._stop, self._between, self.steps = number, between, 0
        self.names = []

    def step(self, name, work):
        self.steps += 1
        self.names.append(name)
        if self.steps == self._stop:
            self._stop, between = None, self._between
            between()
        return super().step(name, work)


class Model:
    """What must be known afterwards: each stored answer whose key was neither forgotten nor
    declared expired since.
    """

    def __init__(self):
        self.answered, self.void, self.gone = set(OLD), set(), set()
        self.runs = {"elsewhere", "abandoned"}

    @property
    def known(self):
        return self.answered - self.void - self.gone


class Changes:
    """The changes, on one ledger. Each gets keys of its own by the name of its turn."""

    def __init__(self, folder, model):
        self.folder, self.model = folder, model

    def write(self, run, keys, name="0-0-t-00000"):
        now = time.time_ns() // 1000
        answers = [StoredAnswer(key, "ok", f"answer of {key}".encode(), now, run) for key in keys]
        self.folder.write_part(run, name, answers)
        self.model.answered |= {*keys}

    def compact(self, turn):
        compact(self.folder, grace=timedelta(0))

    def compact_and_keep(self, turn):
        compact(self.folder)

    def forget(self, turn):
        key = OLD[{"first": 0, "second": 5}[turn]]
        forget(self.folder, [key])
        self.model.gone.add(key)

    def forget_nothing(self, turn):
        forget(self.folder, [NOWHERE])

    def refresh(self, turn):
        key = OLD[{"first": 1, "second": 6}[turn]]
        expire_keys(self.folder, [key])
        self.model.void.add(key)

    def tidy(self, turn):
        remove_abandoned(self.folder)
        self.model.runs.discard("abandoned")

    def run(self, turn):
        """A run from its beginning to its end, with two parts of answers between."""
        plan = LedgerPlan(
            self.folder.root,
            self.folder.lookup,
            self.folder.fingerprint,
            f"run-{turn}",
            Ttl(),
            2,
            0.5,
        )
        announce(self.folder, plan.run_id)
        look_at_ledger(plan)
        self.model.runs.discard("abandoned")
        known = select(
            self.folder, pa.array(OLD), now_us=time.time_ns() // 1000, ttl=FOR_EVER
        ).answers["key"]
        assert {*known.to_pylist()} >= {*OLD} & self.model.known - {OLD[0], OLD[1], OLD[5], OLD[6]}
        keep_keys(plan, pa.array(["a", "b"]))
        for number in range(2):
            self.write(plan.run_id, [f'["new {turn} {number}"]'], f"0-0-t-{number:05d}")
            assert f"runs/run-{turn}/by_row.arrow" in self.folder.names("runs"), (
                "its folder was deleted"
            )
        unregister(plan)

    ALL = ("compact", "compact_and_keep", "forget", "forget_nothing", "refresh", "tidy", "run")


def fill(changes):
    """A generation, a replaced one and compacted parts, parts of later, and the folders of two runs
    elsewhere, one of them abandoned.
    """
    changes.write("run-0", OLD[:4])
    compact(changes.folder)
    changes.write("run-1", OLD[2:6])
    compact(changes.folder)
    changes.write("run-2", OLD[4:])
    for run, days in {"elsewhere": 0, "abandoned": 3}.items():
        changes.folder.replace(f"runs/{run}/run.json", b'{"host": "another", "pid": 1}')
        beat = time.time() - 86_400 * days
        os.utime(f"{changes.folder.path}/runs/{run}/run.json", (beat, beat))


def judge(folder, model, where):
    wanted = pa.array(sorted({*OLD, *model.answered}))
    found = (
        select(folder, wanted, now_us=time.time_ns() // 1000, ttl=FOR_EVER)
        .answers["key"]
        .to_pylist()
    )
    assert set(found) == model.known, where
    files = {path: path.read_bytes() for path in Path(folder.path).rglob("*") if path.is_file()}
    for key in model.gone:
        assert not [path.name for path, data in files.items() if key[2:-2].encode() in data], (
            where,
            key,
        )
    of_runs = {path.parts[-2:] for path in files if "/runs/" in str(path)}
    assert of_runs == {(run, "run.json") for run in model.runs}, where
    assert not [path for path in files if path.name.endswith(".draft")], where


KINDS = {"folder": "EIO", "store": "503"}
PAIRS = itertools.product(Changes.ALL, repeat=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pair", "place", "every"),
    [
        (("compact", "forget"), "folder", 3),
        (("forget", "compact"), "store", 9),
        (("forget", "compact_and_keep"), "folder", 20),
        *(
            pytest.param(pair, place, 1, marks=pytest.mark.proof)
            for pair in PAIRS
            for place in KINDS
            if (pair[0], place) != ("refresh", "folder")  # a single step, within others above
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_a_ledger_change_during_another_loses_no_answer_and_keeps_no_forgotten_key(
    tmp_path, monkeypatch, pair, place, every
):
    first, second = pair
    monkeypatch.setattr(store, "COMPRESSION", "none")
    monkeypatch.setattr(compaction, "ROWS_PER_FILE", 3)  # a forget keeps the files without its key
    storage = SteppedStorage(KINDS[place])
    put_under(tmp_path, storage, monkeypatch.setattr)
    start = tmp_path / "start"
    fill(Changes(LedgerFolder(str(start), "price", "f" * 16), Model()))
    for step in itertools.count(1, every):
        here, model = tmp_path / str(step), Model()
        shutil.copytree(start, here)
        changes = Changes(LedgerFolder(str(here), "price", "f" * 16), model)
        storage.stop_at(step, lambda changes=changes: getattr(changes, second)("second"))
        getattr(changes, first)("first")
        steps, where = storage.steps, (pair, step)
        storage.stop_at(None, None)
        judge(changes.folder, model, where)
        compact(changes.folder, grace=timedelta(0))
        compact(changes.folder, grace=timedelta(0))
        judge(changes.folder, model, where)
        shutil.rmtree(here)
        if steps < step:
            break
    assert step > 1


def test_a_compaction_writes_no_further_file_after_a_forget(tmp_path, monkeypatch):
    for name in ("ROWS_PER_FILE", "ROWS_IN_MEMORY"):
        monkeypatch.setattr(compaction, name, 2)
    storage = SteppedStorage("503")
    put_under(tmp_path, storage, monkeypatch.setattr)
    came_second = 0
    for step in itertools.count(1, 3):
        changes = Changes(LedgerFolder(str(tmp_path / str(step)), "price", "f" * 16), Model())
        for number, key in enumerate(OLD):
            changes.write(f"run-{number}", [key])
        of_both = []

        def forget_now(changes=changes, of_both=of_both):
            changes.forget("first")
            of_both.append(len(storage.names))

        storage.stop_at(step, forget_now)
        done = compact(changes.folder)
        if not of_both:
            break
        if done.given_up:
            came_second += 1
            on_its_way = storage.names[of_both[0] :].count("create")
            assert on_its_way <= 1, step
    assert came_second > 5
