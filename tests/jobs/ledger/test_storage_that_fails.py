"""A filesystem that fails at one operation, at each in turn: no answer is lost, and no call is made
twice for it.
"""

import itertools
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.commands import compact as compact_command
from jobs.commands.ledgers import DeclaredLedger
from jobs.commands.replaying import refresh
from jobs.commands.replaying.replay import void_what_failed
from jobs.declare.ledger_settings import FOR_EVER
from jobs.errors import LedgerError
from jobs.ledger.answers import StoredAnswer, as_answers
from jobs.ledger.changes import compaction
from jobs.ledger.changes.compaction import compact
from jobs.ledger.changes.erasure import forget
from jobs.ledger.declared_folder import request_fingerprint
from jobs.ledger.keys import key_text
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.selection import select
from jobs.ledger.store import LedgerFolder
from jobs.ledger.stored_request import versions, write_request
from jobs.ledger.working_folders import announce
from jobs.run.keys.hits import with_index
from jobs.run.keys.registration import look_at_ledger, unregister
from tests.jobs.task.test_runner import Function, batch, collected, lookup, plan
from tests.support.failing_storage import ERRORS, FailingStorage, put_under
from tests.support.variants import first_of
from tidegate import Enrichment, HttpLookup, Input, Ledger, Output, Retry, Service

pytestmark = pytest.mark.slow

NOW_US = 1_000_000_000
KEYS = [key_text((number,)) for number in range(20)]
EACH = [
    pytest.param(
        (kind, applied),
        id=f"{kind} {'after' if applied else 'before'}",
        marks=[] if (kind, applied) == ("EIO", False) else pytest.mark.proof,
    )
    for kind in ERRORS
    for applied in (False, True)
]


@pytest.fixture
def failing(request, monkeypatch, tmp_path):
    """Every ledger lies on it; what is written to last goes through it too."""
    storage = FailingStorage(*request.param)
    put_under(tmp_path, storage, monkeypatch.setattr)
    return storage


def records(keys, outcome="ok", at=1, run_id="run"):
    return [
        StoredAnswer(key, outcome, b'{"first_x":1}' if outcome == "ok" else None, at, run_id)
        for key in keys
    ]


def fill(folder):
    """A generation that holds answers alone, one that it replaced, parts taken in, parts of later,
    marks of each kind, and what a run left that was killed long ago.
    """
    folder.write_part("run-1", "0-0", records(KEYS[:8]))
    folder.write_part("run-1", "0-1", records(KEYS[8:10], "asked"))
    compact(folder, grace=timedelta(0), now_us=NOW_US)
    folder.write_part("run-2", "0-0", records(KEYS[10:14], at=2))
    compact(folder, grace=timedelta(days=1), now_us=NOW_US)
    folder.write_part(
        "run-3", "0-0", [*records(KEYS[14:16], "miss", at=3), *records(KEYS[:1], "expired", at=3)]
    )
    folder.write_part("run-3", "0-1", records(KEYS[:2], at=4))
    folder.replace("runs/killed/run.json", b"{}")


def known(folder, keys=KEYS):
    found = select(
        folder, pa.array(keys, pa.string()), now_us=time.time_ns() // 1000, ttl=FOR_EVER
    ).answers
    return {answer.key: answer for answer in as_answers(found)}


def at_each_step(failing, root, job, fingerprint="f" * 16):
    """Whatever operation fails: gives the folder as the failure left it, and what was raised."""
    start = Path(tempfile.mkdtemp(dir=root))
    fill(LedgerFolder(str(start / "ledger"), "first", fingerprint))
    for step in itertools.count(1):
        here = Path(tempfile.mkdtemp(dir=root))
        shutil.copytree(start, here, dirs_exist_ok=True)
        folder = LedgerFolder(str(here / "ledger"), "first", fingerprint)
        raised = None
        failing.fail_at(step)
        try:
            job(folder)
        except LedgerError as error:
            raised = error
        failed = failing.failed
        failing.fail_at(None)
        if failed is None:
            assert step > 8, "next to nothing was done"
            return
        yield folder, (step, failed, raised)


def sentence(error):
    text = str(error)
    return text.startswith(("ledger ", "ledger: ")) and text.endswith(".") and "\n" not in text


def assert_all_or_none(folder, message, afterwards):
    """The change was made whole, or an error was raised. No error: what failed was not needed, as
    facts of a part.
    """
    raised, left = message[2], set(known(folder))
    if raised is None:
        assert left == afterwards, message
    else:
        assert sentence(raised), message
        assert left in ({*KEYS[:16]}, afterwards), message


@pytest.mark.parametrize("failing", EACH, indirect=True)
@pytest.mark.parametrize("grace", first_of([timedelta(0), timedelta(days=1)]))
def test_compaction_loses_no_answer_whatever_operation_fails(failing, tmp_path, grace, monkeypatch):
    monkeypatch.setattr(compaction, "GRACE", grace)

    def job(folder):
        compact(folder, grace=grace, now_us=NOW_US + 10)
        compact_command.remove_abandoned(folder)

    for folder, (step, failed, raised) in at_each_step(failing, tmp_path, job):
        assert raised is None or sentence(raised), (step, failed, raised)
        assert len(known(folder)) == 16, (step, failed)
        job(folder)
        assert len(known(folder)) == 16, (step, failed)


@pytest.mark.proof
@pytest.mark.parametrize("failing", EACH, indirect=True)
def test_forgetting_loses_no_other_answer_and_ends_well_the_next_time_whatever_operation_fails(
    failing, tmp_path
):
    gone = [KEYS[0], KEYS[3], KEYS[11], KEYS[15]]
    for folder, message in at_each_step(
        failing, tmp_path, lambda folder: forget(folder, gone, now_us=NOW_US)
    ):
        assert message[2] is None or sentence(message[2]), message
        assert set(known(folder)) - set(gone) == set(KEYS[:16]) - set(gone), message
        forget(folder, gone, now_us=NOW_US)
        assert set(known(folder)) == set(KEYS[:16]) - set(gone), message


@pytest.mark.proof
@pytest.mark.parametrize("failing", EACH, indirect=True)
def test_a_refresh_marks_its_answers_or_reports_an_error_whatever_operation_fails(
    failing, tmp_path
):
    asked = lookup(Function())

    def job(folder):
        kept = DeclaredLedger(asked, folder, ())
        refresh.expire(kept, refresh.find(kept, "first_x = 1"))

    for folder, message in at_each_step(failing, tmp_path, job):
        marked = {*KEYS[8:10], *KEYS[14:16]}
        assert_all_or_none(folder, message, marked)
        job(folder)
        assert set(known(folder)) == marked, message


# -- a run: the driver's part, then a task's
# ---------------------------------------------------------------------------
class Counting(Function):
    def __init__(self):
        super().__init__()
        self.asked = Counter()

    async def async_invoke(self, value):
        self.asked[value["k"]] += 1
        return await super().async_invoke(value)


def run_once(folder, asked, run_id):
    """What one run of a day does with the ledger, but for Spark, which carries it from the driver
    to the task.
    """
    ledger = LedgerPlan(
        folder.root,
        folder.lookup,
        folder.fingerprint,
        run_id,
        FOR_EVER,
        4,
        0.02,
        idempotent=asked.idempotent,
    )
    try:
        announce(ledger.open_folder(), ledger.run_id)
        look_at_ledger(ledger)
        write_request(folder, asked)
        answers = select(folder, pa.array(KEYS, pa.string()), now_us=NOW_US, ttl=FOR_EVER).answers
        planned = replace(plan(asked), ledgers=(with_index(ledger, answers),))
        return collected(planned, [batch(start, 5) for start in range(0, 20, 5)])
    finally:
        unregister(ledger)


@pytest.mark.proof
@pytest.mark.parametrize("failing", EACH, indirect=True)
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_run_repeats_no_stored_call_whatever_operation_fails(failing, tmp_path, idempotent):
    functions = {}

    def job(folder):
        function = functions.setdefault(folder.root, Counting())
        run_once(
            folder,
            lookup(function, retry=Retry(retries=0), idempotent=idempotent),
            f"r{len(function.asked)}",
        )

    for folder, message in at_each_step(failing, tmp_path, job):
        function = functions[folder.root]
        stored = known(folder)
        open_marks = {key for key, answer in stored.items() if answer.outcome == "asked"}
        assert message[2] is None or sentence(message[2]), message
        assert len(stored) >= 16, message
        assert not set(function.asked) & set(range(8)), message
        before = function.asked.copy()
        if idempotent:
            stored = {key: answer for key, answer in stored.items() if key not in open_marks}
        job(folder)
        again = function.asked - before
        assert {key_text((number,)) for number in again} == set(KEYS) - set(stored), message
        if not idempotent:
            assert max(function.asked.values(), default=0) <= 1, message
        assert len(known(folder)) == 20, message


@pytest.mark.parametrize("failing", EACH, indirect=True)
def test_a_replay_voids_only_the_records_of_its_dead_letters_whatever_operation_fails(
    failing, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    service = Service(name="first_api", url="http://127.0.0.1:1", max_concurrency=1)
    asked = HttpLookup(
        name="first", service=service, request="GET /{k}", keys={"k": "k"},
        returns="first_x BIGINT", timeout=1.0, on_miss="dead_letter",
    )  # fmt: skip
    letters = pa.table({"_lookup": ["first"] * 4, "_key": [KEYS[1], KEYS[14], KEYS[15], KEYS[19]]})

    def job(folder):
        ledger, output = Ledger(folder.root), Output(path="data/published/x")
        declared = Enrichment(
            name="x", input=Input(path="raw"), lookups=[asked], output=output, ledger=ledger
        )
        void_what_failed(declared, "2024-05-01", letters)

    for folder, message in at_each_step(failing, tmp_path, job, request_fingerprint(asked)):
        assert_all_or_none(folder, message, {*KEYS[:14]})
        job(folder)
        assert set(known(folder)) == {*KEYS[:14]}, message


@pytest.mark.parametrize("failing", [("EIO", False)], indirect=True)
def test_a_failed_listing_is_never_read_as_an_empty_ledger(failing, tmp_path):
    folder = LedgerFolder(str(tmp_path / "ledger"), "first", "f" * 16)
    fill(folder)
    for look in (folder.parts, folder.is_empty, folder.names, lambda: versions(folder)):
        failing.fail_at(1)
        with pytest.raises(LedgerError, match=r"cannot be listed: .*Input/output error"):
            look()
