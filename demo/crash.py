"""The demo's crash: a day killed with -9 in the middle and started again, and the same by a hand-written gather."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.calls import Call, Tally
from demo.gather import keys
from demo.weather_service import WeatherService

AT = 0.5  # share of the rows at which the day is killed
LOOK_EVERY = 0.01  # s


@dataclass(frozen=True)
class Bill:
    """What the service's own log says of one day's calls, the killed run and the one after it together."""

    requests: int
    distinct_keys: int
    asked_twice: int

    @classmethod
    def of(cls, calls: Sequence[Call]) -> Bill:
        tally = Tally.of(calls)
        return cls(tally.calls, tally.distinct_keys, tally.asked_twice)

    def __str__(self) -> str:
        return f"{self.requests:,} requests for {self.distinct_keys:,} distinct keys; asked twice: {self.asked_twice:,}"


def calls_during(service: WeatherService, work: Callable[[], object]) -> tuple[Call, ...]:
    """The calls that ended at the service while `work` ran, from the service's log."""
    before = len(service.calls())
    work()
    return service.calls()[before:]


def gather_killed_and_again(day: str, service: WeatherService, out: Path) -> Bill:
    """The day by hand: killed with -9 when half of its answers are there, then the same command again."""

    def twice() -> None:
        before, half = len(service.calls()), AT * len(keys(day))
        process = _gather(day, service, out)
        while process.poll() is None and len(service.calls()) - before < half:
            time.sleep(LOOK_EVERY)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if _gather(day, service, out).wait() != 0:
            raise RuntimeError("the hand-written gather failed; its reason stands above")

    return Bill.of(calls_during(service, twice))


def _gather(day: str, service: WeatherService, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "demo.gather", "--day", day, "--url", service.url, "--out", str(out)]
    return subprocess.Popen(command, env=dict(os.environ))  # noqa: S603
