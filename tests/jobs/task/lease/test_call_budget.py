"""What a task may spend: docs/planning.md, Caps."""

import asyncio
import dataclasses

import pytest
from aiohttp import web

from jobs.clients import request_counter
from jobs.clients.client import NotSent
from jobs.errors import BudgetExhausted
from jobs.ledger.plan import CallCap
from jobs.ledger.store import LedgerFolder
from jobs.run.plan.caps import cap_on_cost
from jobs.task.lease.call_budget import CallBudget
from jobs.task.runner import PartitionRun
from tests.jobs.task.lookup.test_task_ledger import NO_RETRY, with_ledger
from tests.jobs.task.test_runner import Function, answered, batches, in_time, lookup, plan
from tidegate import Batch, HttpLookup, Price, Service

PART = 20  # so few that its failures are no outage


def even_keys_only(key):
    if key % 2:
        raise ValueError("no such line")
    return answered(key)


@pytest.mark.parametrize(("has_ledger", "second"), [(True, PART // 2), (False, PART)])
def test_a_second_attempt_may_spend_the_part_of_a_cap_that_was_not_stored(
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


def test_an_unsent_call_costs_nothing():
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


def test_repeated_keys_of_a_refused_batch_count_in_max_cost(service):
    billed = []

    async def answer(request):
        keys = await request.json()
        billed.extend(keys)
        if any(key % 10 == 3 for key in keys):  # a bad item in each batch
            return web.Response(status=422)
        return web.json_response([{"first_x": key} for key in keys])

    service.answer = answer
    prices = [Price("0.01 USD")]
    asked = HttpLookup(
        name="first",
        service=Service(name="geo", url=service.url, max_concurrency=1, prices=prices),
        request="POST /",
        batch=Batch(max_items=10, max_wait=0.01, item="{k}"),
        keys={"k": "k"},
        returns="first_x BIGINT",
        timeout=30.0,
        retry=NO_RETRY,
    )
    planned = dataclasses.replace(
        plan(asked, mode="ordered", share=1), cap=cap_on_cost([asked], "1 USD", 1)
    )
    request_counter.begin()
    with pytest.raises(BudgetExhausted):
        in_time(lambda: list(PartitionRun(planned, 0, 0).run(iter(batches(500)))))
    assert 80 <= len(billed) <= 100 + 24, "the halves of the last batch have 24 keys"


def test_a_key_of_a_batch_reserves_its_share_of_the_most_that_the_answer_reports(service):
    sizes = []

    async def answer(request):
        keys = await request.json()
        sizes.append(len(keys))
        found = [{"first_x": key} for key in keys]
        # of the last batch the use stays unknown
        return web.json_response({"found": found, "hits": len(keys) if len(sizes) < 5 else "?"})

    service.answer = answer
    prices = [Price("0.01 USD", per="hit", at_most=10)]
    asked = HttpLookup(
        name="first",
        service=Service(name="geo", url=service.url, max_concurrency=1, prices=prices),
        request="POST /",
        batch=Batch(max_items=10, max_wait=1.0, item="{k}", answers="$.found"),
        bill={"hits": "$.hits"},
        keys={"k": "k"},
        returns="first_x BIGINT",
        timeout=30.0,
        retry=NO_RETRY,
    )
    planned = dataclasses.replace(
        plan(asked, mode="ordered", share=1), cap=cap_on_cost([asked], "0.50 USD", 1)
    )
    request_counter.begin()
    with pytest.raises(BudgetExhausted):
        in_time(lambda: list(PartitionRun(planned, 0, 0).run(iter(batches(500)))))
    assert sizes == [10] * 5
