"""`tidegate limits`: prints what runs hold of each limit over runs, and what they want."""

import argparse

from jobs.declare.limits.budgets import MONEY, PARTS
from jobs.errors import DeclarationError
from jobs.limits.store_url import LIMITS_URL, limits_url
from tidegate.commands.command import RIGHT, Command, no_arguments
from tidegate.commands.lines import aligned

HEADINGS = ("service", "limit", "run", "holds", "due", "wants", "ends in")


def _run(_options: argparse.Namespace) -> int:
    url = limits_url()
    if not url:
        raise DeclarationError(
            f"{LIMITS_URL} is off: limits hold within each run only. Unset it to have runs meet."
        )
    from jobs.commands.limits import holders_and_pauses

    holders, pauses = holders_and_pauses(url)
    for pause in pauses:
        print(f"{pause.service}: paused for another {pause.seconds:.0f} s ({pause.reason})")
    if not holders:
        print("No run has or wants a part of a limit.")
        return RIGHT
    lines = [HEADINGS] + [
        (
            one.service,
            one.limit.removeprefix(MONEY)
            + (f" of {_shown(one.limit, one.amount)}" if one.amount else ""),
            one.run,
            *(_shown(one.limit, amount) for amount in (one.holds, one.due, one.wants)),
            f"{one.expires_in:.0f} s",
        )
        for one in holders
    ]
    for line in aligned(lines):
        print(line)
    return RIGHT


def _shown(limit: str, amount: int) -> str:
    """Return an amount of a limit as text; money in its currency's unit."""
    return f"{amount / PARTS:,.2f}" if limit.startswith(MONEY) else f"{amount:,}"


COMMAND = Command(no_arguments, _run)
