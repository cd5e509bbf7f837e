"""A run killed at any request of its ledger to an object store loses no stored answer."""

import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.declare.ledger_settings import Ttl
from jobs.ledger.changes.compaction import compact
from jobs.ledger.changes.erasure import forget
from jobs.ledger.keys import key_text
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.selection import select
from jobs.ledger.working_folders import announce
from jobs.ledger.writing.writer import LedgerWriter
from jobs.run.keys.hits import with_index
from jobs.run.keys.kept_keys import keep_keys
from jobs.run.keys.registration import look_at_ledger, unregister
from tests.support.killed_processes import behind_a_proxy, requests_to_break

pytestmark = pytest.mark.proof

ROOT = Path(__file__).parents[3]
FIRST, KEYS = [f"k{number}" for number in range(3)], [f"k{number}" for number in range(11)]
TEXTS = [key_text((key,)) for key in KEYS]
GONE = TEXTS[:2]
AT_ONCE = timedelta(0)
CLUTTER = '[]"'


def plan_of(root, run_id):
    return LedgerPlan(root, "score", "f" * 16, run_id, Ttl(), flush_rows=2, flush_seconds=60)


def answers_in(root):
    """The response of each key that needs no call."""
    found = select(
        plan_of(root, "").open_folder(), pa.array(TEXTS), now_us=time.time_ns() // 1000, ttl=Ttl()
    ).answers
    return dict(zip(found["key"].to_pylist(), found["response"].to_pylist(), strict=True))


def ask(root, run_id, keys, told):
    """What a run does with its ledger: it asks what is not known, two keys at a time, and waits
    until both are stored. told: a file for the keys that are.
    """
    plan = plan_of(root, run_id)
    folder = plan.open_folder()
    announce(folder, run_id)
    look_at_ledger(plan)
    found = select(folder, pa.array(TEXTS), now_us=time.time_ns() // 1000, ttl=Ttl()).answers
    known = set(found["key"].to_pylist())
    with_index(plan, found)
    keep_keys(plan, pa.array([key_text((key,)) for key in keys]))
    missing = [key for key in keys if key_text((key,)) not in known]
    writer = LedgerWriter(folder, run_id, "0-0", flush_rows=2, flush_seconds=60)
    for pair in (missing[start : start + 2] for start in range(0, len(missing), 2)):
        for key in pair:
            ticket = writer.put(
                (key,), "ok", f'"{key} by {run_id}"'.encode(), time.time_ns() // 1000
            )
        writer.wait(ticket)
        with told.open("a") as file:
            file.writelines(f"{key_text((key,))} {run_id}\n" for key in pair)
    writer.close()
    unregister(plan)


def told_in(told):
    """The response of each key that the writer reported as stored."""
    lines = told.read_text().splitlines() if told.exists() else []
    return {
        key: f'"{key.strip(CLUTTER)} by {run}"'
        for key, run in (line.rsplit(" ", 1) for line in lines)
    }


@pytest.fixture
def killed(s3, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with behind_a_proxy(s3, preload=__name__) as run:
        yield run


at_each_request = pytest.mark.parametrize("served", [False, True])


@at_each_request
@pytest.mark.parametrize("compacted", [False, True])
def test_a_run_killed_at_any_ledger_request_loses_no_answer_and_the_next_run_calls_the_rest(
    killed, s3, tmp_path, served, compacted
):
    for at in requests_to_break():
        root, told = f"{s3.bucket}/{at}", tmp_path / f"told-{at}"
        ask(root, "old", FIRST, told)
        if compacted:
            compact(plan_of(root, "").open_folder(), grace=AT_ONCE)
        if not killed(ask, root, "killed", KEYS, told, at=at, served=served):
            break
        stored = answers_in(root)
        assert stored.items() >= told_in(told).items()
        ask(root, "next", KEYS, told)
        assert answers_in(root).items() >= stored.items()
        assert answers_in(root).keys() == set(TEXTS)
        assert answers_in(root).items() >= told_in(told).items()
    assert at > 12


@at_each_request
@pytest.mark.parametrize("work", ["compact", "forget"])
def test_a_compaction_or_forget_killed_at_any_request_loses_no_answer_and_can_be_repeated(
    killed, s3, tmp_path, served, work
):
    kept = set(TEXTS) - set(GONE) if work == "forget" else set(TEXTS)
    for at in requests_to_break():
        root, told = f"{s3.bucket}/{at}", tmp_path / f"told-{at}"
        ask(root, "old", FIRST, told)
        compact(plan_of(root, "").open_folder(), grace=AT_ONCE)
        ask(root, "new", KEYS, told)
        if not killed(WORKS[work], root, at=at, served=served):
            break
        assert answers_in(root).keys() >= kept
        WORKS[work](root)
        assert answers_in(root) == {
            key: response for key, response in told_in(told).items() if key in kept
        }
    assert at > 10


def compact_all(root):
    compact(plan_of(root, "").open_folder(), grace=AT_ONCE)


def forget_some(root):
    forget(plan_of(root, "").open_folder(), GONE)


WORKS = {"compact": compact_all, "forget": forget_some}
