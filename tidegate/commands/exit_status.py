"""The exit status of a command that an error ended."""

import argparse

from jobs.errors import TidegateError


def exit_status(options: argparse.Namespace, error: TidegateError) -> int:
    """Return the exit status of an error that ended a command; with --json, print its object."""
    if getattr(options, "json", False):
        from tidegate.commands.day_json import tell_error

        return tell_error(options, error)
    return error.status
