"""What a task's ledger says of answers that the writer cannot take."""

import asyncio

import pytest

from jobs.declare.ledger_settings import Ttl
from jobs.errors import LedgerError
from jobs.ledger.answers import StoredAnswer, as_answers, as_table
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.resolution import effective_records
from jobs.task.lookup.task_ledger import TaskLedger


def test_while_an_answer_cannot_be_stored_no_batch_is_safe(tmp_path):
    plan = LedgerPlan(
        str(tmp_path), "f", "0123456789abcdef", "run-1", Ttl(), flush_rows=200, flush_seconds=0.5
    )

    async def task():
        ledger = TaskLedger(plan, 0, 0, lambda: 1)
        ledger.open()
        ledger.keep((1j,), {"x": 1}, 1)
        for _ in range(2):
            with pytest.raises(LedgerError, match="a key cannot hold a complex"):
                ledger.durability_mark().wait()
        with pytest.raises(LedgerError, match="a key cannot hold a complex"):
            ledger.keep((2,), {"x": 1}, 1)
        with pytest.raises(LedgerError, match="a key cannot hold a complex"):
            ledger.close()

    asyncio.run(task())


def test_an_answer_in_doubt_is_not_used_and_a_later_answer_is():
    def line(key, outcome, at):
        return StoredAnswer(key, outcome, b"1" if outcome == "ok" else None, at, "r")

    stored = [
        line("a", "ok", 1), line("b", "ok", 1), line("c", "ok", 1), line("a", "expired", 2),
        line("b", "expired", 1), line("a", "ok", 3), line("d", "expired", 5), line("e", "asked", 1),
        line("e", "ok", 2), line("e", "expired", 3), line("e", "asked", 4),
    ]  # fmt: skip
    last = {
        answer.key: answer.outcome for answer in as_answers(effective_records(as_table(stored)))
    }
    assert last == {"a": "ok", "c": "ok", "e": "asked"}
