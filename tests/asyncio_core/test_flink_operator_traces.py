"""Replays scenarios recorded from Flink 2.3.0 jobs, in virtual time; flink/README.md says what the
lines hold.
"""

import asyncio
import json
from pathlib import Path

import pytest

from asyncio_core import (
    NO_RETRY,
    AsyncWaitOperator,
    OutputMode,
    StreamRecord,
    Watermark,
    exponential_backoff,
    fixed_delay,
)
from asyncio_core.testing import run_virtual

TRACES = Path(__file__).parent / "flink" / "operator_traces.jsonl"
SCENARIOS = [json.loads(line) for line in TRACES.read_text().splitlines()]
MAX = 2**63 - 1


class UserError(Exception):
    pass


class Behaviour:
    """The recorded user function: what each call of each record does, in which of the two runs of a
    job.
    """

    def __init__(self, scenario, run, invocations, timeouts):
        self.behaviour = scenario["behaviour"]
        self.run = run
        self.invocations = invocations
        self.timeouts = timeouts
        self.attempts = {}

    async def async_invoke(self, value):
        attempt = self.attempts[value] = self.attempts.get(value, 0) + 1
        self.invocations.append((value, attempt, self.run))
        behaviour = self.behaviour[str(value)]
        steps = behaviour["attempts"]
        if self.run == 1:
            steps = behaviour.get("attempts_after_restore", steps)
        step = steps[min(attempt, len(steps)) - 1]
        if "never" in step:
            await asyncio.get_running_loop().create_future()
        if "sync_raise" in step:
            raise UserError(step["sync_raise"])
        if "delay" in step:
            await asyncio.sleep(step["delay"] / 1000)
        if "error" in step:
            raise UserError(step["error"])
        return None if "complete_null" in step else step["complete"]

    def timeout(self, value):
        self.timeouts.append(value)
        answer = self.behaviour[str(value)].get("timeout")
        if answer is None:
            raise TimeoutError("Async function call has timed out.")
        if "complete" in answer:
            return answer["complete"]
        raise UserError(answer.get("error") or answer.get("sync_raise"))


def strategy(retry):
    if retry is None:
        return NO_RETRY
    predicates = {
        "on_result": (lambda results: not results) if retry["on_empty"] else None,
        "on_exception": (lambda error: True) if retry["on_exception"] else None,
    }
    if retry["kind"] == "fixed":
        return fixed_delay(
            max_retries=retry["max_attempts"], delay=retry["backoff_ms"] / 1000, **predicates
        )
    return exponential_backoff(
        max_retries=retry["max_attempts"],
        initial_delay=retry["initial_ms"] / 1000,
        max_delay=retry["max_ms"] / 1000,
        multiplier=retry["multiplier"],
        **predicates,
    )


class Job:
    """One scenario: a source, the operator, and after a planned failure the second run from the
    last snapshot.
    """

    def __init__(self, scenario):
        self.scenario = scenario
        self.outputs = []
        self.invocations = []
        self.timeouts = []

    async def run(self):
        state, position = await self.run_once(0, [], 0)
        if state is not None:
            await self.run_once(1, state, position)

    async def run_once(self, run, state, position):
        scenario = self.scenario
        operator = AsyncWaitOperator(
            Behaviour(scenario, run, self.invocations, self.timeouts),
            lambda element: self.outputs.append(self.plain(element, run)),
            mode=OutputMode[scenario["mode"]],
            timeout=scenario["timeout_ms"] / 1000 or None,
            capacity=scenario["capacity"],
            retry_strategy=strategy(scenario["retry"]),
        )
        await operator.open()
        try:
            await operator.restore_state(state)
            for index, event in enumerate(scenario["source"][position:], start=position):
                if event[0] == "rec":
                    await operator.process_element(StreamRecord(event[1], event[2]))
                elif event[0] == "wm":
                    await operator.process_element(Watermark(event[1]))
                elif event[0] == "sleep":
                    await asyncio.sleep(event[1] / 1000)
                elif run == 0:
                    return operator.snapshot_state(), index + 1
            await operator.process_element(Watermark(MAX))
            await operator.end_input()
        finally:
            await operator.close()
        return None, None

    def plain(self, element, run):
        suffix = [f"run{run}"] if self.scenario.get("checkpoint") else []
        if isinstance(element, StreamRecord):
            return ["r", element.value, element.timestamp, *suffix]
        return ["w", "MAX" if element.timestamp == MAX else element.timestamp, *suffix]


@pytest.mark.parametrize("trace", SCENARIOS, ids=lambda trace: trace["input"]["name"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_operator_gives_the_outputs_that_flink_recorded(trace, seed):
    job = Job(trace["input"])
    if trace["failed"] is None:
        run_virtual(job.run, seed=seed)
        assert job.outputs == trace["outputs"]
    else:
        with pytest.raises(Exception) as failure:
            run_virtual(job.run, seed=seed)
        root = failure.value
        while root.__cause__ is not None:
            root = root.__cause__
        assert str(root) in trace["failed"][-1]
        assert job.outputs == trace["outputs"]
    assert set(job.invocations) == {
        (id_, attempt, run) for id_, attempt, _, run in trace["invocations"]
    }
    assert job.timeouts == [id_ for id_, _ in trace["timeouts"]]
