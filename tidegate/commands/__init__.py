"""The commands of the command line, one module each; the order here is the order in which help lists them."""

from tidegate.commands import check, run
from tidegate.commands.command import Command

COMMANDS: tuple[Command, ...] = (check.COMMAND, run.COMMAND)
