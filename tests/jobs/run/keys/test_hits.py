"""What a run knows of its keys once some of them were asked."""

import pickle
import time
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import pyarrow as pa
import pytest

from jobs.declare.ledger_settings import FOR_EVER, Ttl
from jobs.ledger.answers import StoredAnswer, as_answers, as_table
from jobs.ledger.plan import LedgerPlan, run_of_keys
from jobs.ledger.selection import select
from jobs.run.keys.day_keys import SparkKeys
from jobs.run.keys.hits import Hits, find_hits, with_own_answers
from jobs.run.keys.judged_answers import without_old_errors
from jobs.run.keys.key_texts import ROWS, TEXT
from tidegate import HttpLookup, Service

SCORE = HttpLookup(
    name="score", service=Service(name="s", url="http://s", max_concurrency=1), request="GET /{k}",
    keys={"k": "k"}, returns="score INT", timeout=1.0,
)  # fmt: skip


def test_an_answer_valid_at_the_start_of_a_run_is_valid_to_its_end(tmp_path):
    plan = LedgerPlan(str(tmp_path), "score", "f" * 16, "r", Ttl(ok=timedelta(days=1)), 200, 0.5)
    folder, now = plan.open_folder(), time.time_ns() // 1000
    a_day_ago = now - 24 * 3600 * 1_000_000
    before = [StoredAnswer(key, "ok", b"1", a_day_ago, "yesterday") for key in ("[1]", "[2]")]
    folder.write_part("yesterday", "0-0-0", before)
    wanted = pa.table({"__key_text": ["[1]", "[2]", "[3]", "[4]"]})
    begun = select(folder, wanted["__key_text"], now_us=a_day_ago + 1, ttl=plan.ttl).answers
    folder.write_part(run_of_keys("r"), "0-0-0", [StoredAnswer("[3]", "ok", b"2", now, "r-keys")])
    folder.write_part(
        "other", "0-0-0", [StoredAnswer(key, "ok", b"3", now, "other") for key in ("[2]", "[4]")]
    )
    hits = with_own_answers(Hits(plan, ("k",), SparkKeys(None, wanted), begun, SCORE))
    known = as_answers(hits.answers)
    message = {answer.key: answer.response for answer in known}
    assert message == {"[1]": b"1", "[2]": b"3", "[3]": b"2", "[4]": b"3"}
    assert len(known) == 4


def test_an_answer_of_another_run_during_a_prefetch_is_valid_in_the_next_pass(tmp_path):
    plan = LedgerPlan(str(tmp_path), "score", "f" * 16, "r", Ttl(ok=timedelta(days=1)), 200, 0.5)
    folder, now = plan.open_folder(), time.time_ns() // 1000
    wanted = pa.table({"__key_text": ["[1]"]})
    begun = select(folder, wanted["__key_text"], now_us=now, ttl=plan.ttl).answers
    folder.write_part("other", "0-0-0", [StoredAnswer("[1]", "ok", b"1", now, "other")])
    hits = with_own_answers(Hits(plan, ("k",), SparkKeys(None, wanted), begun, SCORE))
    later = replace(plan, ttl=Ttl(ok=timedelta(0)))  # as if a day had passed since
    hits = with_own_answers(replace(hits, plan=later))
    assert [answer.response for answer in as_answers(hits.answers)] == [b"1"]


@pytest.mark.parametrize("sent", [False, True])
def test_a_replay_keeps_stored_answers_that_count_as_errors_now_in_its_tasks_too(sent):
    """A task that held them for too old paid for their keys again."""
    lookup = replace(SCORE, error_when=["$.score == 1"])
    ttl = pickle.loads(pickle.dumps(FOR_EVER)) if sent else FOR_EVER
    answers = as_table([StoredAnswer("[1]", "ok", b'{"score": 1}', 1, "before")])
    kept, old = without_old_errors(lookup, answers, ttl=ttl, now_us=9)
    assert (kept.num_rows, len(old)) == (1, 0)
    kept, old = without_old_errors(lookup, answers, ttl=Ttl(miss=None), now_us=9)
    assert (kept.num_rows, old.to_pylist()) == (0, ["[1]"])


class Distinct(NamedTuple):
    """Keys of a day as `find_hits` asks for them."""

    wanted: pa.Table
    names: tuple[str, ...] = ("k",)

    def distinct(self, *, hidden, seed):
        return self


@pytest.mark.parametrize("idempotent", [True, False])
def test_an_unreadable_stored_answer_counts_as_missing_for_a_key_of_several_rows(
    tmp_path, caplog, idempotent
):
    plan = LedgerPlan(str(tmp_path), "score", "f" * 16, "r", Ttl(), 200, 0.5, idempotent=idempotent)
    texts = {
        "[1]": b'{"score": 1}',
        "[2]": b'{"score": {"$datetime": "NaT"}}',
        "[3]": b'{"score": ',
    }
    stored = [StoredAnswer(key, "ok", text, 9, "before") for key, text in texts.items()]
    plan.open_folder().write_part("before", "0-0-0", stored)
    keys = Distinct(pa.table({TEXT: [*texts], ROWS: [2, 2, 1]}))
    found = find_hits(keys, SCORE, plan, seed=1)
    assert found.missing[TEXT].to_pylist() == (["[2]"] if idempotent else [])
    assert caplog.text.count("the stored answer of key [2] cannot be read") == idempotent
    assert "key [3]" not in caplog.text  # one row has it, which says so
