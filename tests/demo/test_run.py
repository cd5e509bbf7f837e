"""`python -m demo` as a newcomer runs it: to the end, again, and with a service that dies."""

import re
import subprocess
import sys

import pytest
from deltalake import DeltaTable

pytestmark = [pytest.mark.spark, pytest.mark.proof]


def demo(folder, *arguments):
    command = [sys.executable, "-m", "demo", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=1_200
    )


def published(folder) -> int:
    return DeltaTable(str(folder / "data/published/flights_enriched")).version()


def test_the_demo_repeats_few_calls_after_a_crash_reruns_without_a_call_and_reports_a_dead_service(
    tmp_path,
):
    days = ("--days", "2013-01-10,2013-01-12")
    done = demo(tmp_path, *days)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    for day, rows in (("2013-01-10", 932), ("2013-01-12", 690)):
        line = next(line for line in done.stdout.splitlines() if line.startswith(f"{day}  weather"))
        numbers = [
            int(number.replace(",", "")) for number in re.findall(r"[\d,]+", line.split("|")[0])[3:]
        ]
        assert numbers[0] == rows == sum(numbers[1:])
    assert "the same for every key" in done.stdout
    assert "2013-01-10  run again: 0 calls" in done.stdout
    ours, by_hand = (
        int(number.replace(",", "")) for number in re.findall(r"asked twice: ([\d,]+)", done.stdout)
    )
    assert ours < by_hand / 2
    version = published(tmp_path)
    assert version == 2  # two days, and the first one once more

    stopped = demo(tmp_path, *days, "--stop-service-at", "0.5")
    assert stopped.returncode == 1
    assert (stopped.stderr, "Traceback" in stopped.stdout) == ("", False)
    assert "the ledger of the last demo is emptied" in stopped.stdout
    message = stopped.stdout.splitlines()
    assert re.fullmatch(
        r"NOT PUBLISHED 2013-01-12: weather_api at 127\.0\.0\.1:\d+ stopped answering at .* gave "
        r"up\.",
        message[-2],
    )
    assert message[-1] == (
        "Safe: 2013-01-10 is published; readers still see the previous 2013-01-12.   Next: `make "
        "demo` again."
    )
    # the first day anew; the day of the outage was not touched
    assert published(tmp_path) == version + 1
