"""The commands of the command line, one module each; the order here is the order in which help lists them."""

from tidegate.commands import check, compact, forget, plan, refresh, remap, replay, run, try_rows, vacuum
from tidegate.commands.command import Command

COMMANDS: tuple[Command, ...] = (
    check.COMMAND,
    try_rows.COMMAND,
    plan.COMMAND,
    run.COMMAND,
    replay.COMMAND,
    remap.COMMAND,
    refresh.COMMAND,
    forget.COMMAND,
    compact.COMMAND,
    vacuum.COMMAND,
)
