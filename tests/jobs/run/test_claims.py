"""Two runs that ask the same keys at once, each in threads of its own, over one real ledger: who asks what."""

import datetime as dt
import itertools
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from jobs.declare.ledger_settings import Ttl
from jobs.errors import LedgerError
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.keys import key_hashes
from jobs.ledger.plan import LedgerPlan
from jobs.run.by_row import begin_deciding, decided
from jobs.run.claims import FEWEST_AHEAD, Claims
from jobs.run.hits import folder_of, register_run, run_of_keys, unregister_run
from tests.support.failing_storage import ERRORS, FailingStorage, put_under
from tests.support.places import everywhere, place_of

pytestmark = pytest.mark.slow


@pytest.fixture
def plan(tmp_path, request):
    root = place_of(request, str(tmp_path))

    def of(run_id, **fields):
        ttl = fields.get("ttl", Ttl())
        return LedgerPlan(root, "score", "f" * 16, run_id, ttl, flush_rows=50, flush_seconds=0.05)

    return of


def batches(keys):
    texts = pa.array([f"[{key}]" for key in keys])
    table = pa.table(
        {"text": texts, "place": pa.array([0] * len(keys), pa.int32()), "hash": pa.array(keys, pa.int64())}
    )
    return iter(table.to_batches(max_chunksize=300))


def ask(plan, keys, others=(), *, at_once=50, seconds=0.004):
    """One task: what it takes it answers, `at_once` at a time, stores that, and says so. Gives what was asked."""
    claims = Claims(
        {0: plan},
        {0: others},
        0,
        text="text",
        place="place",
        hashed="hash",
        types={0: "bigint"},
        seed=hash(plan.run_id),
    )
    taken = queue.Queue()

    def read():
        for batch in claims.take(batches(keys)):
            taken.put(batch)
        taken.put(None)

    reader = threading.Thread(target=read)
    reader.start()
    asked = []
    while (batch := taken.get()) is not None:
        for piece in [batch.slice(start, at_once) for start in range(0, batch.num_rows, at_once)]:
            time.sleep(seconds)
            texts = piece["text"].to_pylist()
            answers = [StoredAnswer(text, "ok", b"1", time.time_ns() // 1000, plan.run_id) for text in texts]
            folder_of(plan).write_part(run_of_keys(plan.run_id), f"0-0-{len(asked):06d}", answers)
            asked += texts
            claims.finished(piece)
    reader.join()
    claims.end()
    return asked


def ask_at_once(*runs):
    found = {}
    threads = [
        threading.Thread(target=lambda run=run, keys=keys, others=others: found.update({run: ask(run, keys, others)}))
        for run, keys, others in runs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [found[run] for run, _, _ in runs]


@everywhere("plan", on_store=pytest.mark.proof)
def test_keys_in_common_are_asked_by_one_of_two_runs_and_both_ask_something(plan):
    one, two = plan("one"), plan("two")
    others = register_run(one).others, register_run(two).others
    assert others == ([], ["one"])
    first, second = ask_at_once((one, range(2000), others[0]), (two, range(800, 2800), others[1]))
    assert len(set(first)) == len(first)
    assert set(first) | set(second) == {f"[{key}]" for key in range(2800)}
    assert len(first) + len(second) == 2800
    assert min(len(first), len(second)) > 900
    assert folder_of(one).names("runs/one/claims") == folder_of(two).names("runs/two/claims") == []


@everywhere("plan", on_store=pytest.mark.proof)
def test_a_task_runs_as_far_ahead_of_the_stored_answers_with_each_of_its_lookups(plan):
    keys = 4 * FEWEST_AHEAD  # of each lookup
    plans = {0: plan("one"), 1: replace(plan("one"), lookup="other")}
    claims = Claims(
        plans, {}, 0, text="text", place="place", hashed="hash", types=dict.fromkeys(plans, "bigint"), seed=1
    )
    table = pa.table(
        {"text": [f"[{key}]" for key in range(2 * keys)], "place": [0] * keys + [1] * keys, "hash": range(2 * keys)}
    )
    taken = queue.Queue()
    reader = threading.Thread(target=lambda: [taken.put(batch) for batch in claims.take(iter(table.to_batches()))])
    reader.start()
    places = Counter()
    while places.total() < 2 * FEWEST_AHEAD:  # nothing is stored meanwhile
        places.update(taken.get(timeout=20)["place"].to_pylist())
    claims.end()
    reader.join()
    assert min(places.values()) > FEWEST_AHEAD / 2
    assert places.total() < 3 * FEWEST_AHEAD


@everywhere("plan", on_store=pytest.mark.proof)
def test_a_run_asks_nothing_that_a_run_before_it_answered_after_it_began(plan):
    one, two = plan("one"), plan("two")
    register_run(one)
    others = register_run(two).others
    ask(one, range(300))
    unregister_run(one)
    assert sorted(ask(two, range(200, 400), others)) == sorted(f"[{key}]" for key in range(300, 400))


@everywhere("plan", on_store=pytest.mark.proof)
def test_an_answer_that_holds_for_no_time_is_asked_by_every_run(plan):
    one, two = plan("one", ttl=Ttl(ok=dt.timedelta(0))), plan("two", ttl=Ttl(ok=dt.timedelta(0)))
    register_run(one)
    others = register_run(two).others
    ask(one, range(50))
    assert len(ask(two, range(50), others)) == 50


@pytest.mark.parametrize("seconds", [-60, 3600])  # the clock was put back by an hour after it died
def test_what_a_dead_run_had_claimed_is_asked_by_others(plan, seconds):
    dead, alive = plan("dead"), plan("alive")
    register_run(dead)
    for share in range(256):
        folder_of(dead).write(f"runs/dead/claims/{share:03d}-0", b"{}")
    last_beat = time.time() + seconds
    os.utime(f"{folder_of(dead).path}/runs/dead/run.json", (last_beat, last_beat))
    assert len(ask(alive, range(100), register_run(alive).others)) == 100


@everywhere("plan", on_store=pytest.mark.proof)
@pytest.mark.process
def test_nobody_waits_for_a_run_whose_process_is_gone(plan):
    dead, alive = plan("dead"), plan("alive")
    begin = (
        "from jobs.run.hits import register_run; import sys, pickle; "
        "register_run(pickle.loads(sys.stdin.buffer.read()))"
    )
    subprocess.run([sys.executable, "-c", begin], input=pickle.dumps(dead), check=True)
    folder_of(dead).write("runs/dead/claims/007-0", b"{}")
    folder_of(dead).write("runs/dead/index-1.arrow", b"")
    assert register_run(alive).others == ["dead"]
    assert folder_of(dead).names("runs/dead") == []
    assert register_run(alive).others == []  # a run after that need not look at its keys first
    folder_of(dead).write("runs/dead/claims/008-0", b"{}")  # by a task that outlived its driver
    register_run(alive)
    assert register_run(alive).others == []
    register_run(dead)  # by this very process, which lives
    register_run(alive)
    assert folder_of(dead).names("runs/dead") == ["runs/dead/run.json"]


@everywhere("plan", on_store=pytest.mark.proof)
def test_what_a_living_run_has_claimed_is_waited_for_until_it_is_answered(plan):
    slow, quick = plan("slow"), plan("quick")
    register_run(slow)
    others = register_run(quick).others
    for share in range(256):
        folder_of(slow).write(f"runs/slow/claims/{share:03d}-0", b"{}")

    def answer_at_last():
        time.sleep(0.5)
        answers = [StoredAnswer(f"[{key}]", "ok", b"1", time.time_ns() // 1000, "slow") for key in range(60)]
        folder_of(slow).write_part(run_of_keys("slow"), "0-0-0", answers)
        for share in range(256):
            folder_of(slow).delete(f"runs/slow/claims/{share:03d}-0")

    answering = threading.Thread(target=answer_at_last)
    answering.start()
    asked = ask(quick, range(100), others)
    answering.join()
    assert sorted(asked) == sorted(f"[{key}]" for key in range(60, 100))


def answer(plan, keys, name="0-0-0"):
    answers = [StoredAnswer(f"[{key}]", "ok", b"1", time.time_ns() // 1000, plan.run_id) for key in keys]
    folder_of(plan).write_part(plan.run_id, name, answers)


def later(*steps, seconds=0.4):
    def go():
        for step in steps:
            time.sleep(seconds)
            step()

    thread = threading.Thread(target=go)
    thread.start()
    return thread


@everywhere("plan", on_store=pytest.mark.proof)
def test_keys_that_another_run_asks_by_row_are_left_to_it_until_it_has_answered_or_ended(plan):
    rows, keys = plan("rows"), plan("keys")
    begin_deciding(rows)
    register_run(rows)
    decided(rows, np.arange(60), "bigint")
    others = register_run(keys).others
    going = later(
        lambda: answer(rows, range(30)), lambda: answer(rows, range(30, 59), "0-0-1"), lambda: unregister_run(rows)
    )
    asked = ask(keys, range(100), others)
    going.join()
    assert sorted(asked) == sorted(f"[{key}]" for key in range(59, 100))  # 59 was an error, which is not stored


@everywhere("plan", on_store=pytest.mark.proof)
def test_a_run_that_has_not_decided_what_it_asks_by_row_is_waited_for(plan):
    rows, keys = plan("rows"), plan("keys")
    begin_deciding(rows)
    register_run(rows)
    others = register_run(keys).others
    going = later(
        lambda: decided(rows, np.arange(10), "bigint"), lambda: answer(rows, range(10)), lambda: unregister_run(rows)
    )
    asked = ask(keys, range(20), others)
    going.join()
    assert sorted(asked) == sorted(f"[{key}]" for key in range(10, 20))


@everywhere("plan", on_store=pytest.mark.proof)
def test_a_run_whose_keys_have_other_types_is_waited_for_as_nobody_can_compare_them(plan):
    rows, keys = plan("rows"), plan("keys")
    begin_deciding(rows)
    register_run(rows)
    decided(rows, np.arange(1000, 1010), "int")
    others = register_run(keys).others
    going = later(lambda: answer(rows, range(10)), lambda: unregister_run(rows))
    asked = ask(keys, range(20), others)
    going.join()
    assert sorted(asked) == sorted(f"[{key}]" for key in range(10, 20))


@everywhere("plan", on_store=pytest.mark.proof)
def test_answers_that_hold_for_no_time_are_not_waited_for(plan):
    rows, keys = plan("rows", ttl=Ttl(ok=dt.timedelta(0))), plan("keys", ttl=Ttl(ok=dt.timedelta(0)))
    register_run(rows)
    decided(rows, np.arange(50), "bigint")
    assert len(ask(keys, range(50), register_run(keys).others)) == 50


KINDS = [(kind, applied) for kind in ERRORS for applied in (False, True)]


@pytest.mark.parametrize(
    ("kind", "every"), [(KINDS[0], 9), *(pytest.param(kind, 1, marks=pytest.mark.proof) for kind in KINDS)]
)
def test_no_key_that_another_run_has_is_given_whatever_operation_fails(plan, tmp_path, monkeypatch, kind, every):
    """A listing that fails is not an empty one: the other run would be taken for ended, and its keys for free."""
    storage = FailingStorage(*kind)
    put_under(tmp_path, storage, monkeypatch.setattr)
    other = plan("other")
    register_run(other)
    claimed = {share_of(key) for key in range(30)}
    for share in claimed:
        folder_of(other).write(f"runs/other/claims/{share:03d}-0", b"{}")
    answer(other, range(30, 40))
    free = {f"[{key}]" for key in range(40, 60) if share_of(key) not in claimed}
    assert len(free) > 10
    for step in itertools.count(1, every):
        own = plan(f"own{step}")
        others = register_run(own).others
        claims = Claims(
            {0: own}, {0: others}, 0, text="text", place="place", hashed="hash", types={0: "bigint"}, seed=step
        )
        given, raised = set(), None
        storage.fail_at(step)
        try:
            for batch in claims.take(batches(range(60))):
                given |= {*batch["text"].to_pylist()}
                claims.finished(batch)
                if given == free:
                    claims.end()
        except LedgerError as error:
            raised = error
        failed = storage.failed
        storage.fail_at(None)
        unregister_run(own)
        assert given <= free, (step, failed)
        assert (given == free) or raised is not None, (step, failed)
        if failed is None:
            break
    assert step > 100


def share_of(key):
    return int(key_hashes([f"[{key}]"])[0] >> np.uint64(56))
