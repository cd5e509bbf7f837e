"""The enrichment of README.md, run as it stands beside a service."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines.engine import ENGINE, LOCAL
from tests.support.documents import blocks
from tests.support.program_here import in_this_session
from tidegate.__main__ import main

pytestmark = pytest.mark.process


@pytest.fixture
def orders(tmp_path, monkeypatch, service):
    """The README's declaration over the orders of docs/your-first-enrichment.md."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CREDIT_URL", service.url)
    monkeypatch.setenv(ENGINE, LOCAL)
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    (declaration,) = blocks("README.md", "python")
    Path("readme").mkdir()
    Path("readme/__init__.py").touch()
    Path("readme/orders.py").write_text(declaration)
    data, *_ = blocks("docs/your-first-enrichment.md", "python")
    exec(data, {})
    yield service
    for name in [name for name in sys.modules if name.partition(".")[0] == "readme"]:
        del sys.modules[name]


def run_the_readmes_command(capsys):
    """The command, and what a terminal shows of it in the end."""
    output = next(block for block in blocks("README.md", "") if block.startswith("$ tidegate"))
    command, *shown = output.splitlines()
    with contextlib.suppress(SystemExit):
        assert main([*command.split()[2:], "--package", "readme"]) == 0
    return shown, capsys.readouterr().out.splitlines()


def test_the_readme_shows_the_output_of_its_command(orders, capsys):
    async def rate(_request):
        return web.json_response({"score": 500, "grade": "A"})

    orders.answer = rate
    shown, printed = run_the_readmes_command(capsys)
    assert printed == shown


def test_the_commands_of_the_readme_make_a_first_table(tmp_path):
    (block,) = blocks("README.md", "bash")
    setup, *commands = block.splitlines()
    assert setup == "make setup && source .venv/bin/activate"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    made = subprocess.run(
        ["bash", "-ec", "\n".join(commands)], cwd=tmp_path, env=os.environ | {"PATH": path},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert "2026-11-19  published   200 rows, 40 calls" in made.stdout
    assert "table: data/published/orders_rated" in made.stdout


def test_a_day_without_any_answer_is_published_with_a_warning(orders, capsys):
    async def not_found(_request):
        raise web.HTTPNotFound

    orders.answer = not_found
    _, (_, warning) = run_the_readmes_command(capsys)
    assert warning == (
        "2026-11-19  warning     rating has no answer, each row that asked is a miss: is the "
        "address right, and the request?"
    )
