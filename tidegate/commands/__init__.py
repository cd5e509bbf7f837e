"""The commands of the command line, a module each, by purpose, in the order of help."""

from tidegate.commands import (
    against,
    check,
    compact,
    costs,
    dead_letters,
    diff,
    evaluate,
    explain,
    forget,
    init,
    limits,
    ls,
    manifest,
    mcp,
    pack,
    plan,
    refresh,
    remap,
    replay,
    reports,
    run,
    show,
    status,
    stream,
    try_rows,
    ui,
    vacuum,
)
from tidegate.commands.command import Command

GROUPS: dict[str, tuple[Command, ...]] = {
    "Begin": (
        init.COMMAND,
        check.COMMAND,
        try_rows.COMMAND,
        evaluate.COMMAND,
        plan.COMMAND,
        against.COMMAND,
    ),
    "Run days": (run.COMMAND, stream.COMMAND),
    "Look, without a call": (
        ls.COMMAND,
        status.COMMAND,
        show.COMMAND,
        explain.COMMAND,
        diff.COMMAND,
        dead_letters.COMMAND,
    ),
    "Mend": (replay.COMMAND, remap.COMMAND, refresh.COMMAND, forget.COMMAND),
    "Keep tidy": (compact.COMMAND, vacuum.COMMAND),
    "Limits and money": (limits.COMMAND, costs.COMMAND),
    "Deploy and serve": (
        manifest.COMMAND,
        pack.COMMAND,
        ui.COMMAND,
        reports.COMMAND,
        mcp.COMMAND,
    ),
}
COMMANDS = tuple(command for commands in GROUPS.values() for command in commands)
