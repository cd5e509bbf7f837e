"""The exit status of a command that an error ended."""

import argparse

from jobs.errors import DeclarationError, RowFailed, RunStopped, TidegateError
from tidegate.commands.command import FAILED, STOPPED, WRONG


def exit_status(options: argparse.Namespace, error: TidegateError) -> int:
    """Return the exit status of an error that ended a command; with --json, print its object."""
    if getattr(options, "json", False):
        from tidegate.commands.day_json import tell_error

        return tell_error(options, error)
    if isinstance(error, DeclarationError):
        return WRONG
    return STOPPED if isinstance(error, RunStopped | RowFailed) else FAILED
