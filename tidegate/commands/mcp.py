"""`tidegate mcp`: serves the commands that read to an agent, by the Model Context Protocol."""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import shlex
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tidegate.commands.command import RIGHT, Command, add_package

if TYPE_CHECKING:
    from mcp.server import MCPServer

PATIENCE = 600.0  # s; `plan` of many days
INSTRUCTIONS = (
    "Nightly tables that Tidegate enriches from paid services. Begin with `status`: what is wrong, "
    "why, and what to do next. Only `run` and `replay` call a service, and only with the hash and "
    "the price of a plan that a person approved: `price` returns both; ask the person for "
    "`tidegate approve`. A person runs any other command that `next_step` names. Personal values "
    "are ***."
)


Tool = Callable[..., Awaitable[Any]]


class RefusedError(ValueError):
    """What an agent cannot have, in a sentence for it."""


async def read(
    package: str, command: str, *arguments: str, patience: float | None = PATIENCE
) -> str:
    """Run a command in a new process, which loads the declarations as they are.

    Returns:
        What it prints.

    Raises:
        RefusedError: It prints nothing but an error.
    """
    # never the server's stdin, which has the agent's messages
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tidegate", command, "--package", package, *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, error = await asyncio.wait_for(process.communicate(), patience)
    except TimeoutError:
        raise RefusedError(
            f"{command} took longer than {patience:g} s; a person can run it."
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if not out.strip():
        raise RefusedError(error.decode(errors="replace").strip() or f"{command} printed nothing.")
    return out.decode(errors="replace")


async def read_object(package: str, command: str, *arguments: str) -> dict[str, Any]:
    """Run a command that reads, and return the object of its --json. Raises RefusedError."""
    found: dict[str, Any] = json.loads(await read(package, command, "--json", *arguments))
    return found


def known_name(enrichment: str) -> str:
    """Return the name of an enrichment. Raises RefusedError for an option or `module:name`."""
    if not enrichment.isidentifier():
        raise RefusedError(
            f"{enrichment!r} is not the name of an enrichment; `ls` lists the names."
        )
    return enrichment


def checked(text: str) -> str:
    """Return a day. Raises RefusedError for an option."""
    if text.startswith("-"):
        raise RefusedError(f"day is {text!r}; write it as 2013-01-10.")
    return text


def given(**options: str) -> list[str]:
    """Return the options that have a value, each as a word that cannot be another option."""
    return [f"--{name}={value}" for name, value in options.items() if value]


class Tools:
    """The commands that read, for a package; their docstrings are what an agent reads of them."""

    def __init__(self, package: str) -> None:
        self._package = package

    async def ls(self) -> dict[str, Any]:
        """List the enrichments: tables, lookups with keys and columns, schedules."""
        return await read_object(self._package, "ls")

    async def status(self, enrichment: str = "", days: int = 3) -> dict[str, Any]:
        """Tell the state of the last days of every table, or of one: why, next step, cost."""
        named = [known_name(enrichment)] if enrichment else []
        return await read_object(self._package, "status", *named, f"--days={days}")

    async def show(self, enrichment: str, day: str = "") -> dict[str, Any]:
        """Show an enrichment as declared; or a day, as 2013-01-10: its runs, checks, lookups."""
        days = [checked(day)] if day else []
        return await read_object(self._package, "show", known_name(enrichment), *days)

    async def explain(
        self, enrichment: str, row: dict[str, str | int | float], column: str = "", day: str = ""
    ) -> dict[str, Any]:
        """Tell where the cells of a published row come from: key, request, answer, run, price.

        row: values that one row has, best those of its `row_id`, as {"order_id": 17}.
        """
        pairs = [f"{name}={value}" for name, value in row.items()]
        if not pairs or any(pair.startswith("-") for pair in pairs):
            raise RefusedError('row names columns and values of one row, such as {"order_id": 17}.')
        options = given(column=column, day=day)
        return await read_object(
            self._package, "explain", known_name(enrichment), *options, "--row", *pairs
        )

    async def diff(
        self, enrichment: str, day: str, from_version: str = "", to_version: str = ""
    ) -> dict[str, Any]:
        """Compare two versions of a published day: cells, rows, outcomes, checks, cost."""
        options = given(**{"from": from_version, "to": to_version})
        return await read_object(
            self._package, "diff", known_name(enrichment), checked(day), *options
        )

    async def dead_letters(self, enrichment: str, day: str = "", where: str = "") -> dict[str, Any]:
        """List the rows that got no answer, by reason; of a day, or with a text in the reason."""
        options = given(day=day, where=where)
        return await read_object(self._package, "dead-letters", known_name(enrichment), *options)

    async def plan(self, enrichment: str, first_day: str, last_day: str = "") -> str:
        """Tell what a run of days would ask, why, and what that would cost; it asks nothing."""
        options = given(**{"from": first_day, "to": last_day})
        return await read(self._package, "plan", known_name(enrichment), *options)

    async def price(self, enrichment: str, day: str, where: str = "") -> dict[str, Any]:
        """Price a run of a day, or with `where` a replay of its letters: plan (a hash), price."""
        options = given(day=checked(day), where=where)
        return await read_object(self._package, "approve", known_name(enrichment), *options)

    async def run(self, enrichment: str, day: str, plan: str, price: str) -> str:
        """Run a day by a plan that a person approved; `price` tells plan and price."""
        return await self._approved(enrichment, day, "", plan, price)

    async def replay(self, enrichment: str, day: str, where: str, plan: str, price: str) -> str:
        """Ask again for the dead letters with a reason, by a plan that a person approved."""
        return await self._approved(enrichment, day, where, plan, price)

    async def _approved(self, enrichment: str, day: str, where: str, plan: str, price: str) -> str:
        from jobs.commands.planning.approving import approved, use

        cure = f"Ask a person for: tidegate approve {known_name(enrichment)} --day {checked(day)}"
        cure += f" --where {shlex.quote(where)}" if where else ""
        found = approved(plan)
        if found is None:
            raise RefusedError(f"Nobody approved the plan {plan!r}. {cure}.")
        asked = (enrichment, day, where, price)
        if asked != (found.enrichment, found.day, found.where, found.price):
            named = f"{found.enrichment} {found.day} {found.where}".rstrip()
            raise RefusedError(f"The plan {plan} is {named} for {found.price}. {cure}.")
        options = given(day=day, where=where, **{"max-cost": price if found.capped else ""})
        now = await read_object(self._package, "approve", enrichment, *options)
        if now["plan"] != plan:
            raise RefusedError(
                f"The plan has changed: {now['calls']} calls, {now['price']} now. {cure}."
            )
        if not use(found):
            raise RefusedError(f"Another run used the approval of {plan}. {cure}.")
        command, *arguments = found.command
        return await read(self._package, command, *arguments, "--json", patience=None)


def make_server(package: str) -> MCPServer:
    """Return a server with a tool for each command that reads, and for approved runs."""
    from mcp.server import MCPServer
    from mcp.types import ToolAnnotations

    server = MCPServer(
        "tidegate", instructions=INSTRUCTIONS, version=version("tidegate"), log_level="ERROR"
    )
    add = server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
    tools = Tools(package)
    for tool in (
        tools.ls,
        tools.status,
        tools.show,
        tools.explain,
        tools.diff,
        tools.dead_letters,
        tools.plan,
        tools.price,
    ):
        add(_with_reasons(tool))
    spend = server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False))
    for spending in (tools.run, tools.replay):
        spend(_with_reasons(spending))
    return server


def _with_reasons(tool: Tool) -> Tool:
    """Return the tool with refusals as the SDK's error, the only one whose text clients see."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    async def answer(*given: Any, **named: Any) -> Any:
        try:
            return await tool(*given, **named)
        except RefusedError as error:
            raise ToolError(str(error)) from error

    return answer


def _run(options: argparse.Namespace) -> int:
    make_server(options.package).run("stdio")
    return RIGHT


COMMAND = Command(add_package, _run, needs=("mcp",))
