"""What a task's ledger says of answers that the writer cannot take."""

import asyncio

import pytest

from jobs.errors import LedgerError
from jobs.ledger.at_task import TaskLedger
from jobs.ledger.declared import Ttl
from jobs.ledger.task_plan import LedgerPlan


def test_while_an_answer_of_a_turn_cannot_be_stored_no_batch_is_safe(tmp_path):
    plan = LedgerPlan(str(tmp_path), "f", "0123456789abcdef", "run-1", Ttl(), flush_rows=200, flush_seconds=0.5)

    async def turn():
        ledger = TaskLedger(plan, 0, 0, lambda: 1)
        ledger.open()
        ledger.keep((1j,), {"x": 1}, 1)
        for _ in range(2):
            await asyncio.sleep(0)  # the end of the turn, whose error nobody hears
            with pytest.raises(LedgerError, match="a key cannot hold a complex"):
                ledger.safe_point()
        with pytest.raises(LedgerError, match="a key cannot hold a complex"):
            ledger.close()

    asyncio.run(turn())
