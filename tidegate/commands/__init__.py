"""The commands of the command line, one module each; the order here is the order in which help lists them."""

from tidegate.commands import (
    check,
    compact,
    costs,
    forget,
    init,
    limits,
    manifest,
    pack,
    plan,
    refresh,
    remap,
    replay,
    reports,
    run,
    stream,
    try_rows,
    ui,
    vacuum,
)
from tidegate.commands.command import Command

COMMANDS: tuple[Command, ...] = (
    init.COMMAND,
    check.COMMAND,
    try_rows.COMMAND,
    plan.COMMAND,
    run.COMMAND,
    stream.COMMAND,
    replay.COMMAND,
    remap.COMMAND,
    refresh.COMMAND,
    forget.COMMAND,
    compact.COMMAND,
    vacuum.COMMAND,
    limits.COMMAND,
    costs.COMMAND,
    manifest.COMMAND,
    pack.COMMAND,
    ui.COMMAND,
    reports.COMMAND,
)
