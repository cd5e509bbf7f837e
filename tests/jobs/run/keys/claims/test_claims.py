"""Two runs that ask the same keys at once, each in threads of its own, over one real ledger: who
asks what.
"""

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
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from jobs.commands.expiry import expire_keys
from jobs.declare.http_lookup import HttpLookup
from jobs.declare.ledger_settings import Ttl
from jobs.declare.services import Service
from jobs.errors import LedgerError
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.keys import key_hashes
from jobs.ledger.plan import LedgerPlan, run_of_keys
from jobs.ledger.selection import Search, Seen
from jobs.ledger.working_folders import BEAT, announce
from jobs.run.keys.claims.claims import Claims
from jobs.run.keys.claims.open_claims import FEWEST_AHEAD
from jobs.run.keys.claims.task_keys import SharedLookup
from jobs.run.keys.hits import known_answers
from jobs.run.keys.kept_keys import keep_keys, release_prefetched
from jobs.run.keys.registration import look_at_ledger, unregister
from tests.support.failing_storage import ERRORS, FailingStorage, put_under
from tests.support.places import everywhere, place_of

pytestmark = pytest.mark.slow
# lists of the keys 0 to 59, by 0.1.0's own code
GOLDEN = Path(__file__).parents[4] / "golden" / "kept_keys_0.1.0"


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
        {
            "text": texts,
            "place": pa.array([0] * len(keys), pa.int32()),
        }
    )
    return iter(table.to_batches(max_chunksize=300))


NOTHING = Seen()
LOOKUP = HttpLookup(
    name="score",
    service=Service(name="s", url="http://localhost", max_concurrency=1),
    request="GET /{k}",
    keys={"k": "k"},
    returns="x INT",
    timeout=1.0,
)


def register(plan):
    """A run that has registered and looked around. Returns the other runs."""
    announce(plan.open_folder(), plan.run_id)
    return look_at_ledger(plan).others


def texts_of(keys):
    return pa.array([f"[{key}]" for key in keys], pa.string())


def decide(plan, by_row=(), **more):
    keep_keys(plan, by_row if by_row is None else texts_of(by_row), **more)


def parse_claims(*plans, attempt=0, lookup=LOOKUP, seen=NOTHING):
    shared = {number: SharedLookup(plan, lookup, seen) for number, plan in enumerate(plans)}
    return Claims(shared, 0, attempt, text="text", place="place", seed=hash(plans[0].run_id))


def shares_file(shares, task=0, attempt=0):
    return f"claims/{task}-{attempt}-{sum(1 << share for share in shares):064x}"


def claim_all(plan):
    plan.open_folder().replace(f"runs/{plan.run_id}/{shares_file(range(256))}", b"{}")


def ask(plan, keys, *, at_once=50, seconds=0.004):
    """One task: what it takes it answers, `at_once` at a time, stores that, and says so. Gives what
    was asked.
    """
    claims = parse_claims(plan)
    taken = queue.Queue()

    def read():
        try:
            for batch in claims.take(batches(keys)):
                taken.put(batch)
        finally:
            taken.put(None)

    reader = threading.Thread(target=read)
    reader.start()
    asked = []
    while (batch := taken.get()) is not None:
        for piece in [batch.slice(start, at_once) for start in range(0, batch.num_rows, at_once)]:
            time.sleep(seconds)
            texts = piece["text"].to_pylist()
            answers = [
                StoredAnswer(text, "ok", b"1", time.time_ns() // 1000, plan.run_id)
                for text in texts
            ]
            plan.open_folder().write_part(
                run_of_keys(plan.run_id), f"0-0-{len(asked):06d}", answers
            )
            asked += texts
            claims.finished(piece)
    reader.join()
    claims.end()
    return asked


def ask_at_once(*runs):
    found = {}
    threads = [
        threading.Thread(target=lambda run=run, keys=keys: found.update({run: ask(run, keys)}))
        for run, keys in runs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [found[run] for run, _ in runs]


@everywhere("plan", on_store=pytest.mark.proof)
def test_common_keys_are_called_by_one_of_two_runs_and_both_make_calls(plan):
    one, two = plan("one"), plan("two")
    assert (register(one), register(two)) == ((), ("one",))
    decide(one), decide(two)
    first, second = ask_at_once((one, range(2000)), (two, range(800, 2800)))
    assert len(set(first)) == len(first)
    assert set(first) | set(second) == {f"[{key}]" for key in range(2800)}
    assert len(first) + len(second) == 2800
    assert min(len(first), len(second)) > 900
    assert (
        one.open_folder().names("runs/one/claims")
        == two.open_folder().names("runs/two/claims")
        == []
    )


@everywhere("plan", on_store=pytest.mark.proof)
def test_a_task_runs_as_far_ahead_of_the_stored_answers_with_each_of_its_lookups(plan):
    keys = 4 * FEWEST_AHEAD  # of each lookup
    plans = {0: plan("one"), 1: replace(plan("one"), lookup="other")}
    claims = parse_claims(*plans.values())
    table = pa.table(
        {
            "text": [f"[{key}]" for key in range(2 * keys)],
            "place": [0] * keys + [1] * keys,
        }
    )
    taken = queue.Queue()
    reader = threading.Thread(
        target=lambda: [taken.put(batch) for batch in claims.take(iter(table.to_batches()))]
    )
    reader.start()
    places = Counter()
    while places.total() < 2 * FEWEST_AHEAD:  # nothing is stored meanwhile
        places.update(taken.get(timeout=20)["place"].to_pylist())
    claims.end()
    reader.join()
    assert min(places.values()) > FEWEST_AHEAD / 2
    assert places.total() < 3 * FEWEST_AHEAD


@everywhere("plan", on_store=pytest.mark.proof)
def test_a_run_calls_for_no_key_that_an_earlier_run_answered_meanwhile(plan):
    one, two = plan("one"), plan("two")
    register(one), register(two)
    decide(one), decide(two)
    ask(one, range(300))
    unregister(one)
    assert sorted(ask(two, range(200, 400))) == sorted(f"[{key}]" for key in range(300, 400))


@everywhere("plan", on_store=pytest.mark.proof)
def test_a_key_whose_answers_expire_at_once_is_called_by_every_run(plan):
    one, two = plan("one", ttl=Ttl(ok=dt.timedelta(0))), plan("two", ttl=Ttl(ok=dt.timedelta(0)))
    register(one), register(two)
    decide(one), decide(two)
    ask(one, range(50))
    assert len(ask(two, range(50))) == 50


@pytest.mark.parametrize("seconds", [-60, 3600])  # the clock was put back by an hour after it died
def test_claims_of_a_dead_run_are_called_by_other_runs(plan, seconds):
    dead, alive = plan("dead"), plan("alive")
    register(dead)
    claim_all(dead)
    decide(dead, range(50))
    last_beat = time.time() + seconds
    for name in dead.open_folder().names("runs"):
        os.utime(f"{dead.open_folder().path}/{name}", (last_beat, last_beat))
    register(alive)
    assert len(ask(alive, range(100))) == 100


def test_a_run_that_began_before_a_clock_change_waits_for_no_dead_run(plan):
    dead, alive = plan("dead"), plan("alive")
    register(dead), register(alive)
    claim_all(dead)
    decide(dead), decide(alive, range(200, 300))
    before = time.time() + 3600
    for run in (dead, alive):
        for name in run.open_folder().names(f"runs/{run.run_id}"):
            if run is dead or not name.endswith(BEAT):  # the living one's is renewed
                os.utime(f"{run.open_folder().path}/{name}", (before, before))
    asked = []
    asking = threading.Thread(target=lambda: asked.extend(ask(alive, range(100))), daemon=True)
    asking.start()
    asking.join(20)
    assert len(asked) == 100


@everywhere("plan", on_store=pytest.mark.proof)
@pytest.mark.process
def test_no_run_waits_for_a_run_whose_process_is_gone(plan):
    dead, alive = plan("dead"), plan("alive")
    begin = (
        "import sys, pickle; from jobs.ledger.working_folders import announce; "
        "plan = pickle.loads(sys.stdin.buffer.read()); announce(plan.open_folder(), plan.run_id)"
    )
    subprocess.run([sys.executable, "-c", begin], input=pickle.dumps(dead), check=True)
    claim_all(dead)
    dead.open_folder().replace("runs/dead/index-1.arrow", b"")
    assert register(alive) == ()
    assert dead.open_folder().names("runs/dead") == []
    register(dead)  # by this very process, which lives
    assert register(alive) == ("dead",)
    assert dead.open_folder().names("runs/dead") == ["runs/dead/run.json"]


def test_a_run_of_another_machine_with_the_same_name_is_not_considered_dead(
    plan, tmp_path, monkeypatch
):
    there = tmp_path / "boot_id"
    there.write_text("of another machine")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("jobs.storage.machine.BOOT_ID", there)
        elsewhere.setattr(os, "getpid", lambda: 2**22 + 1)  # no process of this machine
        register(plan("there"))
    assert register(plan("here")) == ("there",)
    assert plan("there").open_folder().names("runs/there") == ["runs/there/run.json"]


@everywhere("plan", on_store=pytest.mark.proof)
def test_a_claims_folder_without_a_registered_run_is_kept_until_it_is_old(plan):
    other, alive = plan("other"), plan("alive")
    other.open_folder().replace("runs/other/index-1.arrow", b"")
    assert register(alive) == ()
    assert other.open_folder().names("runs/other") == ["runs/other/index-1.arrow"]


def test_a_run_deletes_the_folders_that_killed_runs_of_any_host_left_days_ago(plan):
    old = plan("old")
    old.open_folder().replace("runs/old/run.json", b'{"host": "another", "pid": 1}')
    old.open_folder().replace("runs/unregistered/index-1.arrow", b"")
    for name, days in (("old/run.json", 2.1), ("unregistered/index-1.arrow", 1.9)):
        at = time.time() - days * 86_400
        os.utime(f"{old.open_folder().path}/runs/{name}", (at, at))
    assert register(plan("alive")) == ()
    assert old.open_folder().names("runs") == [
        "runs/alive/run.json",
        "runs/unregistered/index-1.arrow",
    ]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b'{"host": 1}', b'{"host": null, "pid": "x"}', b"\xff"]
)
@everywhere("plan", on_store=pytest.mark.proof)
def test_foreign_files_among_the_claims_stop_no_run(plan, content):
    folder = plan("one").open_folder()
    odd = [
        "notes.txt",
        "x/run.json",
        "x/claims/y",
        "x/claims/0-0-zz",
        f"x/claims/{'a' * 300}"[:200],
        "x/keys",
    ]
    for name in odd:
        folder.replace(f"runs/{name}", content)
    folder.replace("runs/x/by_row.arrow", b"")
    one = plan("one")
    assert register(one) == ("x",)
    decide(one)
    # until then the keys that x keeps are unknown
    going = later(lambda: folder.delete("runs/x/run.json"))
    assert len(ask(one, range(10))) == 10
    going.join()


@everywhere("plan", on_store=pytest.mark.proof)
def test_a_claim_of_a_living_run_is_waited_for_until_it_is_answered(plan):
    slow, quick = plan("slow"), plan("quick")
    register(slow), register(quick)
    decide(slow), decide(quick)
    claim_all(slow)

    def answer_at_last():
        time.sleep(0.5)
        answers = [
            StoredAnswer(f"[{key}]", "ok", b"1", time.time_ns() // 1000, "slow")
            for key in range(60)
        ]
        slow.open_folder().write_part(run_of_keys("slow"), "0-0-0", answers)
        slow.open_folder().delete(f"runs/slow/{shares_file(range(256))}")

    answering = threading.Thread(target=answer_at_last)
    answering.start()
    asked = ask(quick, range(100))
    answering.join()
    assert sorted(asked) == sorted(f"[{key}]" for key in range(60, 100))


@everywhere("plan", on_store=pytest.mark.proof)
def test_two_attempts_whose_killed_predecessors_claimed_one_share_do_not_wait_for_each_other(plan):
    two, three = plan("two"), plan("three")
    register(two), register(three)
    decide(two), decide(three)
    for claims in (two, three):
        claim_all(claims)
    asked = ask_at_once((two, range(7)), (three, range(7)))
    assert sorted(asked[0] + asked[1]) == sorted(f"[{key}]" for key in range(7))


def test_the_claim_of_a_killed_task_expires_though_its_run_lives(plan):
    killed, waits = plan("killed"), plan("waits")
    register(killed), register(waits)
    decide(killed), decide(waits)
    claim_all(killed)
    long_ago = time.time() - 31
    os.utime(
        f"{killed.open_folder().path}/runs/killed/{shares_file(range(256))}", (long_ago, long_ago)
    )
    assert len(ask(waits, range(20))) == 20


def test_a_task_renews_its_claims_for_as_long_as_its_calls_take(plan, monkeypatch):
    monkeypatch.setattr("jobs.run.keys.claims.open_claims.RENEW_EVERY", 0.1)
    one = plan("one")
    register(one), decide(one)
    claims = parse_claims(one)
    taken = claims.take(batches([1]))
    batch = next(taken)
    (name,) = one.open_folder().names("runs/one/claims")
    path, long_ago = f"{one.open_folder().path}/{name}", time.time() - 60
    os.utime(path, (long_ago, long_ago))
    deadline = time.monotonic() + 20
    while Path(path).stat().st_mtime < long_ago + 50 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert Path(path).stat().st_mtime > long_ago + 50
    claims.finished(batch)
    time.sleep(0.3)
    assert one.open_folder().names("runs/one/claims") == []
    claims.end()


def test_a_task_that_waits_long_for_a_claim_reports_the_wait(plan, monkeypatch, caplog):
    monkeypatch.setattr("jobs.run.keys.claims.claims.SAY_EVERY", 0.1)
    one, other = plan("one"), plan("other")
    register(one), register(other)
    decide(one), decide(other)
    claim_all(other)
    claims = parse_claims(one)
    threading.Timer(1.0, claims.end).start()
    assert list(claims.take(batches(range(5)))) == []
    assert "waits for other runs, which ask 5 of its keys" in caplog.text


@everywhere("plan", on_store=pytest.mark.proof)
def test_a_marked_call_whose_answer_another_run_lost_is_not_repeated(plan):
    one, two = (replace(plan(run), idempotent=False) for run in ("one", "two"))
    register(one), register(two)
    decide(one), decide(two)
    mark = StoredAnswer("[7]", "asked", None, time.time_ns() // 1000, "one")
    one.open_folder().write_part(run_of_keys("one"), "0-0-x-00000", [mark], lasting=True)
    assert ask(two, [7, 8]) == ["[8]"]
    # the declaration says now that the call may be repeated
    assert ask(plan("three"), [7, 8]) == ["[7]"]


@everywhere("plan", on_store=pytest.mark.proof)
@pytest.mark.parametrize("old", ["expired", "miss"])
def test_expired_answers_of_a_dead_run_are_called_by_the_prefetch(plan, old):
    one, two = plan("one"), plan("two")
    now = time.time_ns() // 1000
    found = {"expired": ("ok", b"1", now - 10), "miss": ("miss", None, now - 2 * 86_400 * 10**6)}[
        old
    ]
    answers = [StoredAnswer("[7]", *found, "one"), StoredAnswer("[8]", "ok", b"1", now, "one")]
    one.open_folder().write_part(run_of_keys("one"), "0-0-x-00000", answers)
    if old == "expired":
        expire_keys(one.open_folder(), ["[7]"])
    register(two)
    assert ask(two, [7, 8]) == ["[7]"]


@pytest.mark.parametrize("later", ["expired", "error"])
def test_a_record_that_voids_or_settles_a_dead_runs_journal_counts_in_the_prefetch(plan, later):
    """A journal is read again, but not the part that says that its record no longer counts."""
    one, two = plan("one"), replace(plan("two"), idempotent=later == "expired")
    now, folder = time.time_ns() // 1000, one.open_folder()
    outcome = {"expired": "ok", "error": "asked"}[later]
    old = StoredAnswer("[7]", outcome, b"1" if outcome == "ok" else None, now - 10, "one")
    folder.journal(run_of_keys("one"), "0-0-x-00000").append(tuple(zip(old, strict=True)))
    if later == "expired":
        expire_keys(folder, ["[7]"])
    else:
        folder.write_part(
            "one", "0-0-y-00000", [StoredAnswer("[7]", "error", None, now - 5, "one")]
        )
    register(two)
    search = Search(folder, pa.array(["[7]", "[8]"]))
    assert known_answers(search, LOOKUP, two).num_rows == 0
    claims = parse_claims(two, seen=search.seen)
    taken = [text for batch in claims.take(batches([7, 8])) for text in batch["text"].to_pylist()]
    assert sorted(taken) == ["[7]", "[8]"]


def test_stored_answers_now_declared_errors_are_called_by_the_prefetch(plan):
    one, two = plan("one"), plan("two")
    answers = [
        StoredAnswer(f"[{k}]", "ok", b'{"x": %d}' % k, time.time_ns() // 1000, "one")
        for k in (7, 8)
    ]
    one.open_folder().write_part(run_of_keys("one"), "0-0-x-00000", answers)
    register(two)
    claims = parse_claims(two, lookup=replace(LOOKUP, error_when=("$.x == 7",)))
    (given,) = claims.take(batches([7, 8]))
    claims.end()
    assert given["text"].to_pylist() == ["[7]"]


@everywhere("plan", on_store=pytest.mark.proof)
def test_a_late_attempt_uses_answers_of_a_run_that_began_after_its_own_run(plan):
    two, three = plan("two"), plan("three")
    register(two), decide(two)
    seen = Search(two.open_folder(), pa.array(["[7]"]))
    seen.update(1)
    register(three)
    answer(three, [7])
    unregister(three)
    late = Claims(
        {0: SharedLookup(two, LOOKUP, seen.seen)},
        0,
        1,
        text="text",
        place="place",
        seed=1,
    )
    (given,) = late.take(batches([7, 8]))
    late.end()
    assert given["text"].to_pylist() == ["[8]"]


@pytest.fixture
def slow_search(plan, monkeypatch):
    """A run `one`, whose first search takes 31 s, beside a run `two`.

    Gives a function that takes the key 7 in a task of `one`, and does something of `two` meanwhile.
    """
    one, two = plan("one"), plan("two")
    register(one), register(two), decide(two)

    def take_beside(meanwhile):
        now = [0.0]

        def search_slowly(*arguments):
            found = known_answers(*arguments)
            if not now[0]:
                now[0] = 31.0
                meanwhile(two)
            return found

        monkeypatch.setattr("jobs.run.keys.claims.task_keys.known_answers", search_slowly)
        shared = {0: SharedLookup(one, LOOKUP)}
        claims = Claims(shared, 0, text="text", place="place", seed=1, clock=lambda: now[0])
        taken = list(claims.take(batches([7])))
        claims.end()
        return taken

    return take_beside


def test_a_claim_that_expired_during_a_search_yields_to_a_newer_claim(
    slow_search,
):
    def claim_then_answer(other):
        claim_all(other)
        later(lambda: answer(other, [7]), lambda: unregister(other))

    assert slow_search(claim_then_answer) == []


def test_a_claim_that_expired_during_a_search_finds_answers_stored_meanwhile(
    slow_search,
):
    # the other run claims the key, stores its answer and deletes the claim
    assert slow_search(lambda other: answer(other, [7])) == []


def answer(plan, keys, name="0-0-0"):
    answers = [
        StoredAnswer(f"[{key}]", "ok", b"1", time.time_ns() // 1000, plan.run_id) for key in keys
    ]
    plan.open_folder().write_part(plan.run_id, name, answers)


def later(*steps, seconds=0.4):
    def go():
        for step in steps:
            time.sleep(seconds)
            step()

    thread = threading.Thread(target=go)
    thread.start()
    return thread


def ask_while(plan, keys, *steps):
    """Ask for the keys while another run takes these steps; the keys that were called."""
    going = later(*steps)
    asked = ask(plan, keys)
    going.join()
    return asked


@everywhere("plan", on_store=pytest.mark.proof)
def test_keys_that_another_run_calls_by_row_are_left_to_that_run_until_it_ends(plan):
    rows, keys = plan("rows"), plan("keys")
    register(rows)
    decide(rows, range(60))
    register(keys)
    asked = ask_while(
        keys,
        range(100),
        lambda: answer(rows, range(30)),
        lambda: answer(rows, range(30, 59), "0-0-1"),
        lambda: unregister(rows),
    )
    # 59 was an error, which is not stored
    assert sorted(asked) == sorted(f"[{key}]" for key in range(59, 100))


@everywhere("plan", on_store=pytest.mark.proof)
def test_keys_that_another_run_prefetches_are_left_to_that_run(plan):
    alone, keys = plan("alone"), plan("keys")
    register(alone)
    decide(alone, prefetched=texts_of(range(60)))
    register(keys)
    asked = ask_while(
        keys, range(100), lambda: answer(alone, range(59)), lambda: release_prefetched(alone)
    )
    assert sorted(asked) == sorted(f"[{key}]" for key in range(59, 100))
    assert alone.open_folder().names("runs/alone") == [
        "runs/alone/by_row.arrow",
        "runs/alone/run.json",
    ]


@everywhere("plan", on_store=pytest.mark.proof)
def test_a_run_waits_until_another_run_has_decided_its_keys_by_row(plan):
    rows, keys = plan("rows"), plan("keys")
    register(rows)
    register(keys)
    asked = ask_while(
        keys,
        range(20),
        lambda: decide(rows, range(10)),
        lambda: answer(rows, range(10)),
        lambda: unregister(rows),
    )
    assert sorted(asked) == sorted(f"[{key}]" for key in range(10, 20))


@everywhere("plan", on_store=pytest.mark.proof)
def test_a_run_waits_for_a_run_whose_keys_only_spark_reads(plan):
    rows, keys = plan("rows"), plan("keys")
    register(rows)
    decide(rows, None)
    register(keys)
    asked = ask_while(keys, range(20), lambda: answer(rows, range(10)), lambda: unregister(rows))
    assert sorted(asked) == sorted(f"[{key}]" for key in range(10, 20))


@pytest.mark.parametrize("kept", ["by_row.arrow", "keys.arrow"])
def test_keys_held_by_a_run_of_version_0_1_0_are_left_to_that_run_until_it_ends(plan, kept):
    older, keys = plan("older"), plan("keys")
    register(older)
    decide(older)
    older.open_folder().replace(f"runs/older/{kept}", (GOLDEN / kept).read_bytes())
    register(keys)
    asked = ask_while(keys, range(60), lambda: answer(older, range(59)), lambda: unregister(older))
    assert asked == ["[59]"]


@everywhere("plan", on_store=pytest.mark.proof)
def test_no_run_waits_for_answers_that_expire_at_once(plan):
    rows, keys = (
        plan("rows", ttl=Ttl(ok=dt.timedelta(0))),
        plan("keys", ttl=Ttl(ok=dt.timedelta(0))),
    )
    register(rows)
    decide(rows, range(50))
    register(keys)
    assert len(ask(keys, range(50))) == 50


KINDS = [(kind, applied) for kind in ERRORS for applied in (False, True)]


@pytest.mark.parametrize(
    ("kind", "every"),
    [(KINDS[0], 9), *(pytest.param(kind, 1, marks=pytest.mark.proof) for kind in KINDS)],
)
def test_no_claim_is_given_twice_whatever_operation_fails(plan, tmp_path, monkeypatch, kind, every):
    """A listing that fails is not an empty one: the other run would be taken for ended, and its
    keys for free.
    """
    storage = FailingStorage(*kind)
    put_under(tmp_path, storage, monkeypatch.setattr)
    other = plan("other")
    register(other), decide(other)
    claimed = {share_of(key) for key in range(30)}
    other.open_folder().replace(f"runs/other/{shares_file(claimed)}", b"{}")
    answer(other, range(30, 40))
    free = {f"[{key}]" for key in range(40, 60) if share_of(key) not in claimed}
    assert len(free) > 10
    for step in itertools.count(1, every):
        own = plan(f"own{step}")
        register(own)
        claims = parse_claims(own)
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
        claims.end()
        unregister(own)
        assert given <= free, (step, failed)
        assert (given == free) or raised is not None, (step, failed)
        if failed is None:
            break
    assert step > 15  # a store has fewer operations than a disk: it moves no file


def share_of(key):
    return int(key_hashes([f"[{key}]"])[0] >> np.uint64(56))
