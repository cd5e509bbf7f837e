"""A ledger on a store whose listings show a new object late: no reader loses a stored answer."""

import random
from datetime import timedelta

import pyarrow as pa
import pytest
from pyarrow.fs import PyFileSystem

from jobs.declare.ledger_settings import FOR_EVER
from jobs.ledger import keyed_file, ledger_files
from jobs.ledger.answers import StoredAnswer, as_answers, as_table
from jobs.ledger.changes.compaction import compact
from jobs.ledger.selection import select
from jobs.ledger.store import LedgerFolder
from tests.simulation import night_at_work
from tests.simulation.file_access import ArrowFiles, create
from tests.simulation.scheduler import EPOCH
from tests.simulation.storage import ObjectStore
from tests.simulation.test_conformance import simulated

LAG = 60.0  # s; far below the day for which replaced files stay
DAYS = timedelta(days=1).total_seconds()


class LateStore(ObjectStore):
    """Each listing may leave out an object that was put less than LAG s before."""

    def __init__(self, draws):
        super().__init__()
        self.draws = draws

    def step(self, name, path, work):
        """At once: the ledger reads in threads that are none of a night's."""
        return work()

    def children(self, folder):
        return [
            path
            for path in super().children(folder)
            if any(map(self._is_listed, self._below(path)))
        ]

    def _below(self, path):
        return [file for name, file in self.files.items() if f"{name}/".startswith(f"{path}/")]

    def _is_listed(self, file):
        age = EPOCH + night_at_work.scheduler().now - file.mtime
        return age >= LAG * self.draws.random()


def answer(key, now):
    return StoredAnswer(key, "ok", f'"{key}"'.encode(), int((EPOCH + now) * 1e6), "run")


@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(3, 60))]
)
def test_each_answer_is_found_after_the_delay_of_listings(seed, monkeypatch):
    draws = random.Random(f"late:{seed}")
    with simulated(seed) as night:
        store = LateStore(draws)
        files = PyFileSystem(ArrowFiles(store))
        for module in (ledger_files, keyed_file):
            monkeypatch.setattr(module, "open_filesystem", lambda root: (files, root))
        monkeypatch.setattr(ledger_files.LedgerFiles, "_create", create)
        folder = LedgerFolder("ledger", "first", "f" * 16)
        written, early = {}, 0
        for number in range(60):
            now_us = int((EPOCH + night.now) * 1e6)
            does = draws.choice(("write", "write", "read", "read", "compact"))
            if does == "write":
                keys = [f"{number}-{place}" for place in range(draws.choice((1, 3)))]
                folder.write_part(
                    f"run{number}", "0-0", as_table([answer(key, night.now) for key in keys])
                )
                written |= dict.fromkeys(keys, night.now)
            elif does == "compact":
                compact(folder, now_us=now_us)
            else:
                found = as_answers(
                    select(
                        folder, pa.array(sorted(written), pa.string()), now_us=now_us, ttl=FOR_EVER
                    ).answers
                )
                assert all(answer.response == f'"{answer.key}"'.encode() for answer in found)
                missing = written.keys() - {answer.key for answer in found}
                assert not {key for key in missing if night.now - written[key] > LAG}
                early += len(missing)
            night.sleep(draws.choice((0.1, 1.0, 5.0, 40.0, 40.0, DAYS)) * draws.random())
    assert early  # some listings were late
