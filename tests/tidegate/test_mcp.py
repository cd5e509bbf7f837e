"""The server for agents, driven by the reference client: it reads all, and can change nothing."""

import asyncio
import json
import os
import re
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client, MCPError, StdioServerParameters

from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines.engine import ENGINE, LOCAL
from tests.jobs.commands.conftest import LocalDays, towns_in
from tests.support.program_here import in_this_session
from tidegate.__main__ import main

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]
DAY = "2013-01-10"


@pytest.fixture
def days(tmp_path, monkeypatch, service):
    towns = towns_in(tmp_path, monkeypatch)
    monkeypatch.setenv("WEATHER_URL", service.url)
    monkeypatch.setenv(ENGINE, LOCAL)
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    return LocalDays(towns, service)


@asynccontextmanager
async def agent():
    """The reference client, with a server that it has started in the project's folder."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "tidegate", "mcp", "--package", "declared"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    async with Client(server) as client:
        yield client


def files():
    """Every file of the project with its content's time, but not what Python compiles."""
    return {
        str(path): path.stat().st_mtime_ns
        for path in Path().rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.proof
def test_an_agent_reads_what_the_commands_print_and_nothing_is_called_or_changed(
    days, service, capsys
):
    days.write_input(DAY, ["alpha", "beta", "alpha"])
    days.fails = {"beta": 500}
    days.towns.declare_too("towns = replace(towns, tolerance=Tolerance(error=1.0))")
    assert days.run(DAY) == 0
    before, calls = files(), len(service.log)
    questions = {
        "ls": ({}, ["ls"]),
        "status": ({"enrichment": "towns"}, ["status", "towns", "--days", "3"]),
        "show": ({"enrichment": "towns", "day": DAY}, ["show", "towns", DAY]),
        "explain": (
            {"enrichment": "towns", "row": {"number": 0}, "day": DAY},
            ["explain", "towns", "--row", "number=0", "--day", DAY],
        ),
        "dead_letters": ({"enrichment": "towns", "where": "500"}, ["dead-letters", "towns"]),
    }

    async def ask():
        async with agent() as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            found = {
                name: await client.call_tool(name, arguments)
                for name, (arguments, _) in questions.items()
            }
            plan = await client.call_tool("plan", {"enrichment": "towns", "first_day": DAY})
            return tools, found, plan

    tools, found, plan = asyncio.run(ask())
    assert set(tools) == {*questions, "diff", "plan"}
    assert all(tool.annotations.read_only_hint for tool in tools.values())
    for name, (_, command) in questions.items():
        capsys.readouterr()
        main([*command, "--package", "declared", "--json"])
        printed = json.loads(capsys.readouterr().out)
        assert {**found[name].structured_content, "at": ""} == {**printed, "at": ""}, name
    assert re.search("requests +1\n", plan.content[0].text)
    assert (files(), len(service.log)) == (before, calls)


REFUSED = (
    ("status", {"enrichment": "--help"}, "'--help' is no name of an enrichment"),
    ("show", {"enrichment": "os:path"}, "'os:path' is no name of an enrichment"),
    ("show", {"enrichment": "towns", "day": "--csv=x"}, "day is '--csv=x'"),
    ("explain", {"enrichment": "towns", "row": {"--show-personal": ""}}, "row names columns"),
    ("explain", {"enrichment": "towns", "row": {}}, "row names columns"),
    ("diff", {"enrichment": "towns", "day": "-h"}, "day is '-h'"),
    ("run", {"enrichment": "towns", "day": DAY}, "run"),
    ("replay", {"enrichment": "towns"}, "replay"),
)


def test_no_argument_is_an_option_and_no_tool_runs_or_replays(days):
    async def ask():
        said = []
        async with agent() as client:
            for tool, arguments, _ in REFUSED:
                try:
                    found = await client.call_tool(tool, arguments)
                    said.append((found.is_error, found.content[0].text))
                except MCPError as error:
                    said.append((True, str(error)))
            wrong = await client.call_tool("show", {"enrichment": "town", "day": DAY})
        return said, wrong.content[0].text

    said, wrong = asyncio.run(ask())
    for (is_error, text), (_, _, sentence) in zip(said, REFUSED, strict=True):
        assert is_error
        assert sentence in text
    assert "no enrichment is named 'town'. Did you mean 'towns'?" in wrong
    assert files().keys() == {"declared/__init__.py", "declared/towns.py"}
