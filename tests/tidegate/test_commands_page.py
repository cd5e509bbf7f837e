"""docs/commands.md and the command line say the same."""

import argparse
import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from enrichments.flights import flights
from jobs.commands.diffing import against
from jobs.commands.diffing.diff import Difference
from jobs.commands.evaluating.evaluate import Evaluation
from jobs.commands.explaining.explain import Explained
from jobs.commands.planning.approving import PricedPlan
from jobs.commands.vendor_jobs import Jobs
from jobs.schema.facts import Facts
from orchestration.common.service_status import Services
from orchestration.common.table_status import Status
from tests.support.documents import blocks
from tidegate import Env
from tidegate.__main__ import command_parser, main
from tidegate.commands import COMMANDS, load_command
from tidegate.commands.dead_letters import Letters
from tidegate.commands.ls import Listed
from tidegate.commands.replay import Price
from tidegate.commands.show import ShownDay

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "commands.md").read_text()
SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
EXAMPLES = [
    line
    for block in (*blocks("docs/commands.md", "sh"), *blocks("docs/streams.md", "sh"))
    for line in block.splitlines()
]
IN_SENTENCES = [  # those with a day, which are written out
    command
    for page in sorted((ROOT / "docs").glob("*.md"))
    for command in re.findall(r"`tidegate ([^`|>]* \d{4}-\d\d-\d\d[^`|>]*)`", page.read_text())
]
FOR_ALL = {"-h", "--help", "--package", "--conf"}  # said at the top of the page


def options_of(command):
    added = argparse.ArgumentParser()
    load_command(command).add_arguments(added)
    return {option for action in added._actions for option in action.option_strings} - FOR_ALL


def test_the_page_has_every_command_in_the_order_of_help():
    assert list(SECTIONS) == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_documented_as_its_help_says_it_with_every_option(command):
    assert SECTIONS[command].splitlines()[0] == COMMANDS[command]
    assert {option for option in options_of(command) if option not in SECTIONS[command]} == set()


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_is_read_by_the_command_line(example):
    program, *arguments = shlex.split(example)
    if program == "export":
        variables = [Env(pair.partition("=")[0]) for pair in arguments]
        assert variables == [flights.lookups[0].service.url, flights.lookups[1].url]
        return
    assert program == "tidegate"
    command_parser(arguments[0]).parse_args(arguments[1:])


@pytest.mark.parametrize("command", IN_SENTENCES)
def test_each_command_in_a_sentence_of_any_page_is_read_by_the_command_line(command):
    name, *arguments = shlex.split(command)
    command_parser(name).parse_intermixed_args(arguments)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"{COMMANDS[command]}." in " ".join(capsys.readouterr().out.split())


def printed_by(kind, roots):
    """The kinds of objects in an object of --json, but for those that another command prints."""
    found = {kind}
    for hint in get_type_hints(kind).values():
        for inner in (hint, *get_args(hint)):
            if isinstance(inner, type) and issubclass(inner, Facts) and inner not in roots:
                found |= printed_by(inner, roots)
    return found


OBJECTS = {
    "eval": Evaluation,
    "test": against.Tested,
    "ls": Listed,
    "status": Status,
    "show": ShownDay,
    "explain": Explained,
    "diff": Difference,
    "dead-letters": Letters,
    "replay": Price,
    "jobs": Jobs,
    "limits": Services,
    "approve": PricedPlan,
}


@pytest.mark.parametrize("command", OBJECTS)
def test_each_field_of_the_object_that_a_command_prints_is_named_in_its_section(command):
    kinds = printed_by(OBJECTS[command], set(OBJECTS.values()))
    names = {field.name for kind in kinds for field in fields(kind)}
    assert {name for name in names if f"`{name}`" not in SECTIONS[command]} == set()
