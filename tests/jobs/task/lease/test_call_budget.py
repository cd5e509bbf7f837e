"""What a task may spend: docs/planning.md, Caps."""

import asyncio
import dataclasses

import pytest

from jobs.clients.client import NotSent
from jobs.errors import BudgetExhausted
from jobs.ledger.plan import CallCap
from jobs.ledger.store import LedgerFolder
from jobs.task.lease.call_budget import CallBudget
from jobs.task.runner import PartitionRun
from tests.jobs.task.lookup.test_task_ledger import NO_RETRY, with_ledger
from tests.jobs.task.test_runner import Function, answered, batches, in_time, lookup, plan

PART = 20  # so few that its failures are no outage


def even_keys_only(key):
    if key % 2:
        raise ValueError("no such line")
    return answered(key)


@pytest.mark.parametrize(("has_ledger", "second"), [(True, PART // 2), (False, PART)])
def test_a_second_attempt_may_spend_again_what_the_first_one_did_not_store(
    tmp_path, has_ledger, second
):
    function = Function(answer=even_keys_only)
    planned = dataclasses.replace(
        plan(lookup(function, retry=NO_RETRY, cache=None), mode="ordered", share=1),
        cap=CallCap(f"max_calls {PART}", parts=(float(PART),), weights=(1.0,)),
    )
    if has_ledger:
        planned = with_ledger(planned, LedgerFolder(str(tmp_path), "first", "f" * 16))
    for attempt, calls in enumerate((PART, PART + second)):
        with pytest.raises(BudgetExhausted):
            in_time(
                lambda number=attempt: list(
                    PartitionRun(planned, 0, number).run(iter(batches(500)))
                )
            )
        assert function.calls == calls


def test_a_call_that_was_not_sent_costs_nothing():
    budget, steps = CallBudget(CallCap("max_calls 1", parts=(1.0,), weights=(1.0,)), 0), [NotSent]

    async def ask(key):
        if steps:
            raise steps.pop()
        return key

    async def main():
        with pytest.raises(NotSent):
            await budget.charge(0, lambda: None, ask, (1,))
        return await budget.charge(0, lambda: None, ask, (1,))

    assert asyncio.run(main()) == (1,)
