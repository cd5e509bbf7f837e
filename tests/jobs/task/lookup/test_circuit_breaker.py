"""When a service is down, and how long it is waited for, in virtual time."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from asyncio_core import Gate
from asyncio_core.testing import run_virtual
from jobs.errors import DeclarationError, RunStopped, ServiceDown
from jobs.task.lookup.circuit_breaker import CircuitBreaker
from tidegate import Outage

RULE = Outage(after=3, probe_every=timedelta(seconds=30), wait_at_most=timedelta(seconds=100))


class Watched:
    def __init__(self, rule=RULE):
        self.gate = Gate()
        self.watch = CircuitBreaker(rule, "geo at http://geo.example", self.gate, self.now_us)

    @staticmethod
    def now_us():
        return int(asyncio.get_running_loop().time() * 1e6)

    def fail(self, times=1, reason="503 Service Unavailable"):
        for _ in range(times):
            self.watch.failed(reason)


def virtual(main):
    return run_virtual(main)


def test_fewer_failures_in_a_row_than_declared_do_not_close_the_gate():
    async def main():
        service = Watched()
        for _ in range(5):
            service.fail(2)
            service.watch.succeeded()
        return service.gate.is_open, service.watch.is_down

    assert virtual(main) == (True, False)


def test_as_many_failures_in_a_row_as_declared_close_the_gate_until_the_next_probe():
    async def main():
        service = Watched()
        service.fail(3)
        seen = [(service.gate.is_open, service.watch.is_down)]
        await asyncio.sleep(29.9)
        seen.append((service.gate.is_open, service.watch.is_down))
        await asyncio.sleep(0.2)
        seen.append((service.gate.is_open, service.watch.is_down))
        return seen

    assert virtual(main) == [(False, True), (False, True), (True, True)]


def test_a_probe_that_fails_closes_the_gate_again_and_one_that_succeeds_ends_the_outage():
    async def main():
        service = Watched()
        service.fail(3)
        await asyncio.sleep(31)
        service.fail()
        closed_again = not service.gate.is_open
        await asyncio.sleep(31)
        service.watch.succeeded()
        ended = not service.watch.is_down
        service.fail(2)
        return closed_again, ended, service.gate.is_open

    assert virtual(main) == (True, True, True)


def test_a_repeated_failure_of_a_row_counts_only_while_the_service_is_down():
    async def main():
        service = Watched()
        service.fail(2)
        for _ in range(100):
            service.watch.failed("500", repeated=True)
        up = service.gate.is_open
        service.fail(1)
        await asyncio.sleep(31)
        service.watch.failed("500", repeated=True)
        return up, service.gate.is_open

    assert virtual(main) == (True, False)


def test_calls_that_were_under_way_may_fail_at_once_without_stopping_the_run():
    async def main():
        service = Watched()
        service.fail(1000)
        return service.gate.is_open

    assert virtual(main) is False


def test_the_last_probe_comes_at_the_end_of_the_wait_and_then_the_run_stops():
    async def main():
        service = Watched()
        await asyncio.sleep(10)
        service.fail(3)
        probes = []
        for pause in (30.0, 30.0, 30.0):
            await asyncio.sleep(pause - 1)
            assert not service.gate.is_open
            await asyncio.sleep(1)
            probes.append(service.gate.is_open)
            service.fail()
        await asyncio.sleep(10)
        probes.append(service.gate.is_open)
        with pytest.raises(RunStopped) as stopped:
            service.fail()
        return probes, str(stopped.value)

    probes, sentence = virtual(main)
    assert probes == [True] * 4
    assert sentence == (
        "geo at http://geo.example stopped answering at 00:00:10 UTC (503 Service Unavailable); "
        "gate closed, waited 100 s, gave up."
    )


def test_an_outage_with_a_wait_of_zero_stops_the_run_at_once():
    async def main():
        service = Watched(Outage(after=1, wait_at_most=timedelta(0)))
        with pytest.raises(RunStopped, match=r"waited 0 s, gave up\.$"):
            service.fail()

    virtual(main)


def test_a_service_that_asks_for_a_pause_gets_the_pause():
    async def main():
        service = Watched()
        service.watch.throttled("429 Too Many Requests", 5.0)
        await asyncio.sleep(4.9)
        held = not service.gate.is_open
        await asyncio.sleep(0.2)
        return held, service.gate.is_open, service.watch.is_down

    assert virtual(main) == (True, True, False)


@pytest.mark.parametrize(
    ("reason", "is_down", "kind", "state"),
    [
        ("429 Too Many Requests", False, RunStopped, "throttled calls"),
        ("503 Service Unavailable", True, ServiceDown, "been unavailable"),
    ],
)
def test_a_service_that_asks_for_a_pause_beyond_the_wait_stops_the_run(
    reason, is_down, kind, state
):
    async def main():
        service = Watched()
        for _ in range(5):
            service.watch.throttled(reason, 20.0, is_down=is_down)
            await asyncio.sleep(20.0)
        with pytest.raises(kind) as stopped:
            service.watch.throttled(reason, 20.0, is_down=is_down)
        return str(stopped.value)

    assert virtual(main) == (
        f"geo at http://geo.example has {state} since 00:00:00 UTC ({reason}): waited 100 s, and "
        "20 s more would exceed wait_at_most, 100 s."
    )


def test_throttled_calls_in_flight_during_a_pause_begin_no_further_pause():
    async def main():
        service = Watched(Outage(wait_at_most=timedelta(0)))
        for _ in range(4):
            service.watch.throttled("429 Too Many Requests", 60.0)
            await asyncio.sleep(1.0)
        return service.gate.is_open

    assert virtual(main) is False


def test_an_answer_between_pauses_restarts_the_wait():
    async def main():
        service = Watched()
        for _ in range(50):
            service.watch.throttled("429 Too Many Requests", 20.0)
            await asyncio.sleep(20.0)
            service.watch.succeeded()

    virtual(main)


@pytest.mark.parametrize(
    ("wait", "seconds", "stops"),
    [(0, 60, False), (0, 61, True), (3600, 3600, False), (60, 3600, True)],
)
def test_a_pause_beyond_the_longest_wait_is_not_begun(wait, seconds, stops):
    async def main():
        service = Watched(Outage(wait_at_most=timedelta(seconds=wait)))
        try:
            service.watch.throttled("429 Too Many Requests", seconds)
        except RunStopped:
            return True
        return False

    assert virtual(main) is stops


SHARE = Outage(
    after=10, probe_every=timedelta(seconds=30), wait_at_most=timedelta(seconds=100), failing=0.5
)


def test_the_declared_share_of_failures_is_an_outage_although_some_calls_succeed():
    async def main():
        service, closed_after = Watched(SHARE), None
        for number in range(60):
            service.fail() if number % 3 else service.watch.succeeded()
            await asyncio.sleep(0.1)
            if not service.gate.is_open and closed_after is None:
                closed_after = number + 1
        return closed_after, service.watch.is_down

    assert virtual(main) == (11, True)


def test_the_share_of_failures_counts_first_attempts_and_retries():
    async def main(failures, answers, *, repeated):
        service = Watched(SHARE)
        for _ in range(answers):
            if service.watch.counts_answers:
                service.watch.succeeded()
        for _ in range(failures):
            service.watch.failed("500", repeated=repeated)
        return service.watch.is_down

    found = [
        virtual(partial(main, failures, 15, repeated=repeated))
        for failures in (9, 14, 15)
        for repeated in (False, True)
    ]
    # ten in a row are an outage by themselves, if they are no retries
    assert found == [False, False, True, False, True, True]


def test_a_probe_that_fails_closes_the_gate_again_in_an_outage_by_share():
    async def main():
        service = Watched(SHARE)
        for _ in range(10):
            service.watch.succeeded()
            service.fail()
        closed = not service.gate.is_open
        await asyncio.sleep(90)
        service.fail()
        return closed, service.gate.is_open

    assert virtual(main) == (True, False)


def test_a_smaller_share_of_failures_closes_no_gate_and_old_failures_expire():
    async def main():
        service = Watched(SHARE)
        for number in range(90):
            service.watch.succeeded() if number % 3 else service.fail()
            await asyncio.sleep(0.1)
        await asyncio.sleep(70)
        service.fail(9)
        return service.gate.is_open

    assert virtual(main) is True


def test_the_answer_to_a_probe_ends_an_outage_by_share():
    async def main():
        service = Watched(SHARE)
        service.fail(10)
        await asyncio.sleep(31)
        service.watch.succeeded()
        service.fail(4)
        return service.watch.is_down, service.gate.is_open

    assert virtual(main) == (False, True)


def test_a_service_that_other_tasks_found_down_counts_as_down_until_the_gate_opens():
    async def main():
        service = Watched()
        service.watch.pause(5.0, down=True)
        await asyncio.sleep(4)
        first = service.watch.closed_seconds()
        await asyncio.sleep(2)
        service.watch.closed_seconds()
        service.watch.pause(3.0, down=False)
        await asyncio.sleep(2)
        return first, service.watch.closed_seconds()

    assert virtual(main) == ((0.0, 4.0), (3.0, 4.0))


@pytest.mark.parametrize(
    "wrong", [{"failing": 0.0}, {"failing": 1.1}, {"failing": 0.5, "within": timedelta(0)}]
)
def test_a_wrong_share_of_failures_is_refused(wrong):
    with pytest.raises(DeclarationError, match="failing must be over 0 and at most 1"):
        Outage(**wrong)
