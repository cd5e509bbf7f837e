"""The server for agents, driven by the reference client: it reads all, and can change nothing."""

import asyncio
import json
import os
import re
import shutil
import sys
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path

import pytest
from mcp import Client, MCPError, StdioServerParameters

from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines.engine import ENGINE, LOCAL
from tests.jobs.commands.conftest import LocalDays, towns_in
from tests.support.program_here import in_this_session
from tidegate.__main__ import main
from tidegate.commands.mcp import RefusedError, read

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


def test_a_command_that_takes_too_long_is_refused_with_a_reason():
    with pytest.raises(RefusedError, match=r"^plan took longer than 0 s; a person can run it\.$"):
        asyncio.run(read("declared", "plan", patience=0.0))


@pytest.mark.proof
def test_an_agent_reads_command_output_without_a_call_or_change(days, service, capsys):
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
    spending = {"run", "replay"}
    assert set(tools) == {*questions, "diff", "plan", "price", *spending}
    assert all(
        tool.annotations.read_only_hint for tool in tools.values() if tool.name not in spending
    )
    for name, (_, command) in questions.items():
        capsys.readouterr()
        main([*command, "--package", "declared", "--json"])
        printed = json.loads(capsys.readouterr().out)
        assert {**found[name].structured_content, "at": ""} == {**printed, "at": ""}, name
    assert re.search("requests +1\n", plan.content[0].text)
    assert (files(), len(service.log)) == (before, calls)


NOBODY = f"Nobody approved the plan '{'0' * 16}'. Ask a person for: tidegate approve towns"
REFUSED = (
    ("status", {"enrichment": "--help"}, "'--help' is not the name of an enrichment"),
    ("show", {"enrichment": "os:path"}, "'os:path' is not the name of an enrichment"),
    ("show", {"enrichment": "towns", "day": "--csv=x"}, "day is '--csv=x'"),
    ("explain", {"enrichment": "towns", "row": {"--show-personal": ""}}, "row names columns"),
    ("explain", {"enrichment": "towns", "row": {}}, "row names columns"),
    ("diff", {"enrichment": "towns", "day": "-h"}, "day is '-h'"),
    ("run", {"enrichment": "towns", "day": DAY}, "plan"),
    ("run", {"enrichment": "towns", "day": DAY, "plan": "0" * 16, "price": "free"}, NOBODY),
    ("run", {"enrichment": "towns", "day": "-h", "plan": "../x", "price": "free"}, "day is '-h'"),
    (
        "replay",
        {"enrichment": "towns", "day": DAY, "where": "500", "plan": "../x", "price": "free"},
        "Nobody approved the plan '../x'",
    ),
    (
        "replay",
        {"enrichment": "towns", "day": DAY, "where": "it's $5", "plan": "../x", "price": "free"},
        """--where 'it'"'"'s $5'.""",
    ),
)


def test_no_argument_is_read_as_an_option_and_no_tool_calls_without_an_approved_plan(days):
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


PRICED = (
    "from tidegate import Price",
    "service = replace(towns.lookups[0].service, prices=[Price('0.0500 USD')])",
    "lookup = replace(towns.lookups[0], service=service)",
    "towns = replace(towns, lookups=[lookup], tolerance=Tolerance(error=1.0))",
)


async def use(client, refused, tool, **arguments):
    """What a tool answers; None if it refuses, whose sentence is added to the list."""
    found = await client.call_tool(tool, {"enrichment": "towns", "day": DAY, **arguments})
    if found.is_error:
        refused.append(found.content[0].text)
        return None
    return found.structured_content


def approved(*options):
    main(["approve", "towns", "--day", DAY, "--package", "declared", *options])


@pytest.mark.proof
def test_only_an_approved_plan_is_run_once_at_its_price(days, service):
    days.towns.declare_too(*PRICED)
    days.write_input(DAY, ["alpha", "beta", "gamma"])
    refused, calls = [], []

    async def ask():
        async with agent() as client:

            async def run(plan, price):
                answer = await use(client, refused, "run", plan=plan, price=price)
                calls.append(len(service.log))
                return answer

            priced = await use(client, refused, "price")
            mine = {"plan": priced["plan"], "price": priced["price"]}
            await run(**mine)
            approved("--yes")
            await run(mine["plan"], "0.0500 USD")
            shutil.move(f"data/raw/towns/date={DAY}", "kept")
            days.write_input(DAY, ["alpha", "beta", "gamma", "delta"])
            await run(**mine)
            shutil.rmtree(f"data/raw/towns/date={DAY}")
            shutil.move("kept", f"data/raw/towns/date={DAY}")
            ran = await run(**mine)
            await run(**mine)
            return priced, json.loads(ran["result"])

    priced, ran = asyncio.run(ask())
    assert (priced["calls"], priced["price"]) == (3, "0.1500 USD")
    assert ran["state"] == "published"
    assert calls == [0, 0, 0, 3, 3]
    assert ["Nobody approved" in refused[0], "Nobody approved" in refused[3]] == [True, True]
    assert f"The plan {priced['plan']} is towns {DAY} for 0.1500 USD." in refused[1]
    assert "The plan has changed: 4 calls, 0.2000 USD now." in refused[2]


@pytest.mark.proof
def test_an_approved_replay_calls_once_for_its_dead_letters(days, service, capsys):
    days.towns.declare_too(*PRICED)
    days.write_input(DAY, ["alpha", "beta"])
    days.fails = {"beta": 500}
    assert days.run(DAY) == 0
    days.fails = {}
    approved("--where", "500", "--yes")
    capsys.readouterr()
    approved("--where", "500", "--json")
    priced = json.loads(capsys.readouterr().out)
    assert (priced["calls"], priced["price"]) == (1, "0.0500 USD")
    again = {"where": "500", "plan": priced["plan"], "price": priced["price"]}
    before, refused = len(service.log), []

    async def ask():
        async with agent() as client:
            replayed = await use(client, refused, "replay", **again)
            await use(client, refused, "replay", **again)
            return json.loads(replayed["result"])

    assert asyncio.run(ask())["state"] == "published"
    assert len(service.log) == before + 1
    assert "Nobody approved the plan" in refused[0]


def test_a_plan_is_approved_only_by_a_person(days, capsys, monkeypatch):
    days.write_input(DAY, ["alpha"])
    monkeypatch.setattr(sys, "stdin", StringIO("yes\n"))
    approved()
    assert "Nothing is approved: a person must answer yes" in capsys.readouterr().err
    assert not Path("data/approved").exists()
