"""The command line: `python -m tidegate <command>`; the commands are in `tidegate/commands`."""

import argparse
import errno
import os
import sys
from importlib.metadata import version
from pathlib import Path

from jobs.declare.finding.extras import require_extra
from jobs.errors import REFUSED_BY_DISK, TidegateError
from jobs.wording import did_you_mean
from tidegate.commands import COMMANDS, GROUPS
from tidegate.commands.command import FAILED, WRONG
from tidegate.commands.exit_status import exit_status
from tidegate.commands.lines import entry
from tidegate.env_file import read_env_file
from tidegate.terminal import printable_output

INTERRUPTED, UNREAD = 130, 141  # as in a shell
OF_THE_DISK = REFUSED_BY_DISK | {
    *(errno.EIO, errno.ETIMEDOUT, errno.ESTALE),  # a failing disk
    *(errno.EMFILE, errno.ENFILE),
}


def parser() -> argparse.ArgumentParser:
    """Return a parser with all commands; the parsed options have the `run` of their command."""
    whole = argparse.ArgumentParser(
        prog="tidegate",
        description="Nightly tables enriched from outside systems.",
        epilog=_commands_by_purpose(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"tidegate {version('tidegate')}")
    commands = whole.add_subparsers(
        dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS
    )
    for command in COMMANDS:
        added = commands.add_parser(command.name, description=f"{command.help}.")
        command.add_arguments(added)
        added.set_defaults(run=command.run, refuse=added.error, needs=command.needs)
    return whole


def _commands_by_purpose() -> str:
    lines = []
    for purpose, commands in GROUPS.items():
        lines.append(f"{purpose}:")
        for command in commands:
            lines += entry(f"{command.name:14}", command.help, 2)
    return "\n".join([*lines, "", "tidegate COMMAND --help lists the options of a command."])


def main(arguments: list[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: The arguments; by default the process's.

    Returns:
        The exit status. 0: done. 1: any other failure. 2: a declaration, its surroundings or the
        arguments are wrong. 3: stopped because a service is down or denies access, or a cap is
        reached; the command can be repeated.
    """
    here = str(Path.cwd())
    read_env_file(Path.cwd())
    if not {"", here} & set(sys.path):
        sys.path.insert(0, here)  # started as a program: the declarations are in the current folder
    with printable_output():
        return _run(arguments)


def _run(arguments: list[str] | None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    names = [command.name for command in COMMANDS]
    if given and given[0][:1] != "-" and given[0] not in names:
        close = did_you_mean(given[0], names) or " tidegate --help lists the commands."
        print(f"tidegate has no command {given[0]!r}.{close}", file=sys.stderr)
        return WRONG
    options, unknown = parser().parse_known_args(given)
    if unknown:
        options.refuse(
            f"unrecognized arguments: {' '.join(unknown)}"
        )  # the command's parser, which shows its arguments
    try:
        for extra in options.needs:
            require_extra(extra, f"tidegate {options.command}")
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader stopped reading, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discards the rest
        return UNREAD
    except KeyboardInterrupt:
        print(
            "Interrupted; published days stay as they are. The same command continues.",
            file=sys.stderr,
        )
        return INTERRUPTED
    except TidegateError as error:
        print(error, file=sys.stderr)
        return exit_status(options, error)
    except OSError as error:
        if error.errno not in OF_THE_DISK and error.filename is None:
            raise
        print(f"{error}. Fix that, then run the same command again: it continues.", file=sys.stderr)
        return FAILED
    return status


if __name__ == "__main__":
    sys.exit(main())
