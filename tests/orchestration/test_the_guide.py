"""docs/your-first-enrichment.md, followed to the letter, and then through Dagster."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.documents import all_blocks

pytestmark = [pytest.mark.spark, pytest.mark.proof]

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
DAY = "2026-11-19"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the project's enrichments, where the guide's files are made."""
    folder = tmp_path_factory.mktemp("guide")
    shutil.copytree(
        ROOT / "enrichments", folder / "enrichments", ignore=shutil.ignore_patterns("__pycache__")
    )
    (folder / "data").mkdir()
    return folder


@pytest.fixture(scope="module")
def message(folder):
    """What each command of the guide prints, by command, as a reader sees it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = os.environ | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(folder),
    }
    environment["COLUMNS"] = "120"  # where it is 80, as it is for pytest's workers, requests wrap
    environment |= {
        "WEATHER_URL": f"http://127.0.0.1:{port}",
        "PLANES_URL": "sqlite+aiosqlite:///:memory:",
    }
    printed = {}
    with contextlib.ExitStack() as ends:
        for language, text in all_blocks("docs/your-first-enrichment.md"):
            if language == "python":
                name = re.match(r"# file: (\S+)\n", text)[1]
                (folder / name).write_text(text)
                continue
            for command in text.strip().replace("8099", port).splitlines():
                if command.startswith("export "):
                    name, value = command.removeprefix("export ").split("=")
                    environment[name] = value
                elif "http.server" in command:
                    server = subprocess.Popen(
                        command.split(), cwd=folder, env=environment, stderr=subprocess.DEVNULL
                    )
                    ends.callback(server.wait)
                    ends.callback(server.terminate)
                    wait_for_port(int(port))
                elif not command.startswith(("#", "source ")):
                    done = subprocess.run(
                        command.split(),
                        cwd=folder,
                        env=environment,
                        capture_output=True,
                        text=True,
                        check=False,
                    )
                    printed[" ".join(command.split()[:2])] = (
                        done.returncode,
                        done.stdout + done.stderr,
                    )
        yield printed, environment


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_file_of_the_guide_is_valid_and_try_makes_real_calls(message):
    printed, _ = message
    assert re.search(r"^orders_rated +right ", printed["tidegate check"][1], re.MULTILINE)
    status, output = printed["tidegate try"]
    assert status == 0, output
    assert "/customers/c0/rating" in output
    assert "500" in output


def test_the_plan_counts_a_call_per_customer_and_not_per_row(message):
    status, planned = message[0]["tidegate plan"]
    assert status == 0, planned
    assert re.search(r"rows +200\n", planned)
    assert re.search(r"distinct keys +40\b", planned)


def test_the_day_is_published_with_the_answers_and_the_unknown_customer(message):
    status, ran = message[0]["tidegate run"]
    assert status == 0, ran
    assert f"{DAY}  published   200 rows, 37 calls" in ran, "three were tried"
    _, looked = message[0]["python data/look.py"]
    assert "{'ok': 195, 'miss': 5}" in looked
    (expected,) = re.findall(
        r"`(\{'ok'.*?\})`", (ROOT / "docs/your-first-enrichment.md").read_text()
    )
    assert expected in looked


def test_dagster_loads_the_new_assets_and_materializes_the_day_without_a_call(message, folder):
    _, environment = message
    home = folder / "data" / "dagster"
    home.mkdir(parents=True)
    done = subprocess.run(
        [BIN / "dagster", "asset", "materialize", "-m", "orchestration.definitions",
         "--select", "orders_rated", "--partition", DAY],
        cwd=folder, env=environment | {"DAGSTER_HOME": str(home)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    table = DeltaTable(str(folder / "data/published/orders_rated"))
    assert table.version() == 1  # published by the command, published by Dagster
    assert "RUN_SUCCESS" in done.stderr
