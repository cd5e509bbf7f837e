"""What a run knows of its keys once some of them were asked."""

import time
from datetime import timedelta

import pyarrow as pa

from jobs.declare.ledger_settings import Ttl
from jobs.ledger.answers import StoredAnswer, as_answers
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.selection import select
from jobs.run.day_keys import SparkKeys
from jobs.run.hits import Hits, folder_of, run_of_keys, with_own_answers
from tidegate import HttpLookup, Service

SCORE = HttpLookup(
    name="score", service=Service(name="s", url="http://s", max_concurrency=1), request="GET /{k}", keys={"k": "k"},
    returns="score INT", timeout=1.0,
)  # fmt: skip


def test_an_answer_that_held_when_the_run_began_holds_to_its_end(tmp_path):
    plan = LedgerPlan(str(tmp_path), "score", "f" * 16, "r", Ttl(ok=timedelta(days=1)), 200, 0.5)
    folder, now = folder_of(plan), time.time_ns() // 1000
    a_day_ago = now - 24 * 3600 * 1_000_000
    before = [StoredAnswer(key, "ok", b"1", a_day_ago, "yesterday") for key in ("[1]", "[2]")]
    folder.write_part("yesterday", "0-0-0", before)
    wanted = pa.table({"__key_text": ["[1]", "[2]", "[3]", "[4]"]})
    begun = select(folder, wanted["__key_text"], now_us=a_day_ago + 1, ttl=plan.ttl).answers
    folder.write_part(run_of_keys("r"), "0-0-0", [StoredAnswer("[3]", "ok", b"2", now, "r-keys")])
    folder.write_part("other", "0-0-0", [StoredAnswer(key, "ok", b"3", now, "other") for key in ("[2]", "[4]")])
    known = as_answers(with_own_answers(Hits(plan, ("k",), SparkKeys(None, wanted), begun, SCORE)))
    message = {one.key: one.response for one in known}
    assert message == {"[1]": b"1", "[2]": b"3", "[3]": b"2", "[4]": b"3"}
    assert len(known) == 4
