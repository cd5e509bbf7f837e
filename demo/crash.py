"""The demo's crash: kills a day with -9 and starts it again; the same for a hand-written gather."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from demo.calls import Call
from demo.gather import keys
from demo.weather_service import WeatherService

AT = 0.5  # share of the rows at which the day is killed
LOOK_EVERY = 0.01  # s


def gather_killed_and_again(day: str, service: WeatherService, out: Path) -> tuple[Call, ...]:
    before, half = len(service.calls()), AT * len(keys(day))
    process = _gather(day, service, out)
    while process.poll() is None and len(service.calls()) - before < half:
        time.sleep(LOOK_EVERY)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if _gather(day, service, out).wait() != 0:
        raise RuntimeError("the hand-written gather failed; its reason stands above")
    return service.calls()[before:]


def _gather(day: str, service: WeatherService, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "demo.gather"]
    command += [f"--day={day}", f"--url={service.url}", f"--out={out}"]
    return subprocess.Popen(command, env=dict(os.environ))  # noqa: S603
