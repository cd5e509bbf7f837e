"""docs/commands.md and the command line say the same."""

import argparse
import re
import shlex
from pathlib import Path

import pytest

from enrichments.flights import flights
from tests.support.documents import blocks
from tidegate import Env
from tidegate.__main__ import command_parser, main
from tidegate.commands import COMMANDS, load_command

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
def test_help_is_there(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"{COMMANDS[command]}." in " ".join(capsys.readouterr().out.split())
