"""The weather service over real HTTP, as a process of its own, judged by its own log."""

import asyncio
import json
import re
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from contextlib import ExitStack

import aiohttp
import pytest

from demo import data
from demo.calls import Tally
from demo.draws import Faults, latency
from demo.weather_service import running
from tests.support.free_ports import free_port

pytestmark = pytest.mark.process

HOURS = [f"2013-01-{day:02}T{hour:02}:00:00Z" for day in range(10, 20) for hour in range(24)]


@pytest.fixture
def service(root, tmp_path, capfd):
    """Starts weather services, which share a log; they must have said nothing on stderr at
    the end.
    """
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(
            running(root / "demo", tmp_path / "calls.jsonl", **settings)
        )
    assert capfd.readouterr().err == ""


@pytest.fixture(scope="module")
def calm(root, tmp_path_factory):
    """One service without latency and faults, for tests that only ask."""
    with running(
        root / "demo", tmp_path_factory.mktemp("calm") / "calls.jsonl", scale=0
    ) as service:
        yield service


async def get(session, url):
    """(status, headers, body) of an answer, or the name of what came instead of one."""
    try:
        async with session.get(url) as response:
            return response.status, response.headers, await response.json()
    except (aiohttp.ClientError, TimeoutError) as nothing:
        return type(nothing).__name__, {}, None


def ask(service, keys, *, timeout=None, at_once=10):
    """The answers to /v1/{key}, in the order of the keys."""

    async def all_of_them():
        async with aiohttp.ClientSession(
            service.url,
            timeout=aiohttp.ClientTimeout(timeout),
            connector=aiohttp.TCPConnector(limit=at_once),
        ) as session:
            # else aiohttp asks a second time by itself when no answer came
            session._retry_connection = False
            return await asyncio.gather(*(get(session, f"/v1/{key}") for key in keys))

    return asyncio.run(all_of_them())


def stats(service):
    with urllib.request.urlopen(f"{service.url}/_stats", timeout=10) as response:
        return json.load(response)


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the event is another process's
            await asyncio.sleep(0.01)


# -- answers
# --------------------------------------------------------------------------------------------------
def test_the_weather_service_answers_with_the_recorded_weather_of_the_hour(calm):
    [(status, _, body)] = ask(calm, ["EWR/2013-01-01T06:45:00Z"])
    assert status == 200
    assert body == {
        "origin": "EWR",
        "hour": "2013-01-01T06:00:00Z",
        "temp_c": 3.9,
        "dew_point_c": -3.3,
        "humidity_pct": 59.37,
        "wind": {"speed": 4.63, "gust": None, "direction": 270},
        "precipitation_mm": 0.0,
        "pressure_hpa": 1012.0,
        "visibility_m": 16_093,
    }


def test_the_hour_in_a_request_may_be_percent_encoded(calm):
    [(status, _, body)] = ask(calm, ["EWR/2013-01-01T06%3A00%3A00Z"])
    assert (status, body["hour"]) == (200, "2013-01-01T06:00:00Z")


@pytest.mark.proof
def test_the_weather_service_has_every_hour_of_the_table(calm):
    keys = [
        f"{row['origin']}/{row['hour']:%Y-%m-%dT%H:%M:%SZ}" for row in data.weather().to_pylist()
    ][::10]
    assert {status for status, *_ in ask(calm, keys, at_once=100)} == {200}


@pytest.mark.parametrize("key", ["EWR/2014-07-01T06:00:00Z", "XXX/2013-01-01T06:00:00Z"])
def test_an_unknown_hour_or_airport_is_a_404(calm, key):
    [(status, _, body)] = ask(calm, [key])
    assert (status, body) == (404, {"error": f"no weather for {key}"})


@pytest.mark.parametrize(
    "moment",
    ["2013-01-01", "2013-01-01T06:61:00Z", "2013-01-01T06:00:00", "2013-01-01T06:00:00+00:00"],
)
def test_a_malformed_hour_is_a_400_and_not_a_miss(calm, moment):
    [(status, _, body)] = ask(calm, [f"EWR/{moment}"])
    assert (status, body) == (
        400,
        {"error": f"{moment!r} is not a moment: write it in UTC, as 2013-01-10T05:15:00Z"},
    )


def test_an_answer_takes_at_least_the_latency_of_its_key(service):
    slow = service()
    ask(slow, [f"JFK/{hour}" for hour in HOURS[:40]])
    assert len(slow.calls()) == 40
    for call in slow.calls():
        assert call.t_end - call.t_start >= latency(0, call.key) - 0.001


# -- faults
# --------------------------------------------------------------------------------------------------
def test_a_throttled_answer_says_when_to_call_again(service):
    [(status, headers, _)] = ask(service(scale=0, faults="throttle=1"), [f"EWR/{HOURS[0]}"])
    assert (status, headers["Retry-After"]) == (429, "1")


@pytest.mark.proof
def test_an_error_is_a_500(service):
    [(status, *_)] = ask(service(scale=0, faults="error=1"), [f"EWR/{HOURS[0]}"])
    assert status == 500


@pytest.mark.proof
def test_a_call_with_the_fault_drop_gets_no_answer(service):
    faulty = service(scale=0, faults="drop=1")
    [(nothing, *_)] = ask(faulty, [f"EWR/{HOURS[0]}"])
    assert nothing == "ServerDisconnectedError"
    assert [call.outcome for call in faulty.calls()] == ["drop"]


def test_a_hanging_call_lasts_until_the_client_goes(service):
    faulty = service(scale=0, faults="hang=1")
    [(nothing, *_)] = ask(faulty, [f"EWR/{HOURS[0]}"], timeout=1.5)
    assert nothing == "TimeoutError"
    asyncio.run(until(faulty.calls))
    [call] = faulty.calls()
    assert call.outcome == "hang"
    assert call.t_end - call.t_start > 0.2


@pytest.mark.proof
def test_faults_follow_the_seed_and_each_key_is_finally_answered(service):
    shares = "throttle=0.1,error=0.1,drop=0.1"
    faulty = service(scale=0, faults=shares, seed=5)
    unanswered = keys = [f"{origin}/{hour}" for origin in ("EWR", "JFK", "LGA") for hour in HOURS]
    for _ in range(20):
        answers = ask(faulty, unanswered)
        unanswered = [
            key
            for key, (status, *_) in zip(unanswered, answers, strict=True)
            if status not in (200, 404)
        ]

    assert unanswered == []
    calls = faulty.calls()
    assert len(calls) > len(keys)
    for call in calls:
        drawn = Faults.parse(shares).draw(5, call.key, call.attempt)
        assert call.outcome == drawn if drawn else call.outcome in ("ok", "miss")
    assert sorted(call.key for call in calls if call.outcome in ("ok", "miss")) == sorted(keys)
    assert Tally.of(calls).asked_twice == 0


# -- the log
# --------------------------------------------------------------------------------------------------
def test_the_log_counts_calls_by_key_and_repeated_calls_of_answered_keys(service):
    calm = service(scale=0)
    ask(calm, [f"EWR/{HOURS[0]}"] * 3 + [f"EWR/{HOURS[1]}"])
    assert Counter(call.key for call in calm.calls()) == {
        f"EWR/{HOURS[0]}": 3,
        f"EWR/{HOURS[1]}": 1,
    }
    counts = stats(calm)
    assert counts.pop("in_flight") == 0
    assert counts == Tally.of(calm.calls()).to_dict()
    assert (
        counts["calls"],
        counts["distinct_keys"],
        counts["asked_twice"],
        counts["outcomes"],
    ) == (
        4,
        2,
        2,
        {"ok": 4},
    )


def test_an_answer_is_in_the_log_before_the_client_has_it(service):
    calm = service(scale=0)
    for n in range(1, 21):
        ask(calm, [f"EWR/{HOURS[n]}"])
        assert len(calm.calls()) == n


@pytest.mark.proof
def test_hundreds_of_calls_in_flight_are_counted_and_end_when_the_client_leaves(service):
    slow = service(scale=1_000)

    async def ask_and_leave():
        async with aiohttp.ClientSession(
            slow.url, connector=aiohttp.TCPConnector(limit=0)
        ) as session:
            calls = [
                asyncio.create_task(get(session, f"/v1/LGA/{HOURS[n % 240]}")) for n in range(400)
            ]
            await until(lambda: stats(slow)["in_flight"] == 400)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
        await until(lambda: stats(slow)["in_flight"] == 0)

    asyncio.run(ask_and_leave())
    assert Tally.of(slow.calls()).to_dict() == {
        "calls": 400,
        "distinct_keys": 240,
        "asked_twice": 160,
        "highest_in_flight": 400,
        "outcomes": {"gone": 400},
    }


# -- life
# --------------------------------------------------------------------------------------------------
@pytest.mark.proof
def test_a_stopped_service_cuts_and_logs_hanging_calls_and_restarts_on_its_port(service):
    faulty = service(port=free_port(), scale=0, faults="hang=1")
    url = faulty.url

    async def stopped_while_asking():
        async with aiohttp.ClientSession(url) as session:
            session._retry_connection = False
            asking = asyncio.create_task(get(session, f"/v1/EWR/{HOURS[0]}"))
            await until(lambda: stats(faulty)["in_flight"] == 1)
            code = await asyncio.to_thread(faulty.stop)
            return code, await asking

    code, (nothing, *_) = asyncio.run(stopped_while_asking())
    assert (code, nothing) == (0, "ServerDisconnectedError")
    assert [call.outcome for call in faulty.calls()] == ["hang"]
    assert ask(faulty, [f"EWR/{HOURS[0]}"])[0][0] == "ClientConnectorError"

    faulty.start()
    assert (faulty.url, stats(faulty)["calls"]) == (url, 0)


@pytest.mark.proof
def test_a_killed_service_restarts_on_its_port_with_the_log_of_all_its_starts(service):
    calm = service(port=free_port(), scale=0)
    ask(calm, [f"EWR/{HOURS[0]}"])
    assert calm.kill() == -9
    calm.start()
    [(status, *_)] = ask(calm, [f"EWR/{HOURS[1]}"])
    assert status == 200
    assert [(call.moment, call.attempt) for call in calm.calls()] == [(HOURS[0], 1), (HOURS[1], 1)]


def test_the_service_ends_when_the_process_that_started_the_service_is_killed(root, tmp_path):
    starter = (
        "import os, pathlib; from demo.weather_service import running\n"
        f"with running(pathlib.Path({str(root / 'demo')!r}), "
        f"pathlib.Path({str(tmp_path / 'log')!r})) as service:\n"
        "    print(service.url, flush=True); os.kill(os.getpid(), 9)"
    )
    started = subprocess.run(
        [sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True, check=False
    )
    assert started.returncode == -9
    host, port = started.stdout.strip().removeprefix("http://").split(":")

    def refused():
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) != 0

    asyncio.run(until(refused))


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "demo.weather_service", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_service_refuses_to_start_on_a_port_in_use(root, tmp_path, calm):
    port = calm.url.rpartition(":")[2]
    ended = run("--data", root / "demo", "--log", tmp_path / "log", "--port", port)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"weather service: port {port} is taken; choose another, or 0 for a free one\n"
    )


def test_the_service_refuses_to_start_without_data_and_names_the_command(tmp_path):
    ended = run("--data", tmp_path, "--log", tmp_path / "log")
    assert ended.returncode == 2
    assert ended.stderr == (
        f"weather service: {tmp_path}/weather.parquet is missing; `python -m demo.data` makes it\n"
    )


def test_the_service_prints_its_address_in_one_line(root, tmp_path):
    command = [
        sys.executable,
        "-m",
        "demo.weather_service",
        "--data",
        root / "demo",
        "--log",
        tmp_path / "log",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        process.send_signal(2)
        rest = process.stdout.read()
    assert re.fullmatch(r"weather service on http://127\.0\.0\.1:\d+\n", line)
    assert (rest, process.returncode) == ("", 0)
