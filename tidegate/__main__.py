"""The command line: `python -m tidegate <command>`; the commands are in `tidegate/commands`."""

import argparse
import atexit
import errno
import gc
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from jobs.declare.finding.extras import require_extra
from jobs.errors import REFUSED_BY_DISK, DeclarationError, TidegateError
from jobs.wording import did_you_mean
from tidegate.commands import COMMANDS, GROUPS, load_command
from tidegate.commands.command import FAILED, WRONG
from tidegate.commands.exit_status import exit_status
from tidegate.commands.lines import entry
from tidegate.env_file import read_env_file
from tidegate.terminal import open_closed_streams, printable_output

INTERRUPTED, UNREAD = 130, 141  # as in a shell
OF_THE_DISK = REFUSED_BY_DISK | {
    *(errno.EIO, errno.ETIMEDOUT, errno.ESTALE),  # a failing disk
    *(errno.EMFILE, errno.ENFILE, errno.ELOOP),
}


def command_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of a command's arguments."""
    parser = argparse.ArgumentParser(prog=f"tidegate {name}", description=f"{COMMANDS[name]}.")
    parser.register("type", None, _text)
    parser.register("type", Path, lambda given: Path(_text(given)))
    load_command(name).add_arguments(parser)
    return parser


def _text(given: str) -> str:
    """Refuse an empty value, which would mean that nothing was given."""
    if not given.strip():
        raise argparse.ArgumentTypeError(
            "the value is empty. Write one, or leave the argument out; a shell variable may be "
            "unset."
        )
    return given


def _help_or_version(given: list[str]) -> NoReturn:
    """Print what an option asks for, or what arguments without a command lack, and exit."""
    parser = argparse.ArgumentParser(
        prog="tidegate",
        description="Nightly tables enriched from outside systems.",
        epilog=_commands_by_purpose(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tidegate {version('tidegate')}")
    parser.add_argument("command", metavar="COMMAND", help=argparse.SUPPRESS)
    parser.parse_args(given)
    parser.error("the command comes first")


def _commands_by_purpose() -> str:
    lines = []
    for purpose, commands in GROUPS.items():
        lines.append(f"{purpose}:")
        for name, text in commands.items():
            lines += entry(f"{name:14}", text, 2)
    return "\n".join([*lines, "", "tidegate COMMAND --help lists the options of a command."])


def main(arguments: list[str] | None = None) -> int:
    """Run a command with these arguments, by default the process's.

    Returns:
        The exit status, as docs/commands.md lists them.
    """
    gc.set_threshold(50_000, 20, 100)  # modules are no garbage
    atexit.register(gc.freeze)  # otherwise the collector scans every object at exit
    open_closed_streams()
    here = str(Path.cwd())
    try:
        read_env_file(Path.cwd())
    except DeclarationError as error:
        print(error, file=sys.stderr)
        return WRONG
    if not {"", here} & set(sys.path):
        # started as a program: the declarations are in the current folder. It comes after Python's
        # modules, whose names its files may have
        packages = (n for n, path in enumerate(sys.path) if path.endswith("-packages"))
        sys.path.insert(next(packages, 0), here)
    with printable_output():
        try:
            try:
                if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # of tidegate.quiet_start
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                return _run(arguments)
            except KeyboardInterrupt:
                # another Ctrl-C ends the process without a word
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                print(
                    "Interrupted; no published day is left half changed. The same command "
                    "continues.",
                    file=sys.stderr,
                )
                return INTERRUPTED
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # the reader stopped reading, as `head` does
            return UNREAD
        except (OSError, RuntimeError) as error:
            if not _is_of_the_disk(error):
                raise
            print(
                f"{error}. Fix that, then run the same command again: it continues.",
                file=sys.stderr,
            )
            return FAILED


def _run(arguments: list[str] | None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if not given or given[0].startswith("-"):
        _help_or_version(given)
    name, *arguments = given
    if name not in COMMANDS:
        close = did_you_mean(name, COMMANDS) or " tidegate --help lists the commands."
        print(f"tidegate has no command {name!r}.{close}", file=sys.stderr)
        return WRONG
    options = command_parser(name).parse_intermixed_args(arguments)  # DAY may follow options
    command = load_command(name)
    try:
        for extra in command.needs:
            require_extra(extra, f"tidegate {name}")
        return command.run(options)
    except TidegateError as error:
        print(error, file=sys.stderr)
        return exit_status(options, error)


def _is_of_the_disk(error: OSError | RuntimeError) -> bool:
    if isinstance(error, OSError):
        return error.errno in OF_THE_DISK or error.filename is not None
    return str(error).startswith("Symlink loop")  # of Path.resolve, before Python 3.13


if __name__ == "__main__":
    sys.exit(main())
