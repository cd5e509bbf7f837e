"""`tidegate limits`: prints what runs hold of each limit over runs, and what they want."""

import argparse
import datetime as dt

from jobs.errors import DeclarationError
from jobs.limits.store_url import LIMITS_URL, limits_url
from tidegate.commands.command import RIGHT, Command, add_json_object, add_package, print_json
from tidegate.commands.lines import aligned

HEADINGS = ("service", "limit", "run", "holds", "due", "wants", "ends in")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_package(parser)
    add_json_object(parser)


def _run(options: argparse.Namespace) -> int:
    if options.json:
        from orchestration.common.service_status import declared, read_services

        print_json(read_services(declared(options.package), dt.datetime.now(dt.UTC)))
        return RIGHT
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
            holder.service,
            holder.limit_shown,
            holder.run,
            *(holder.shown(amount) for amount in (holder.holds, holder.due, holder.wants)),
            "spent" if holder.expires_in is None else f"{holder.expires_in:.0f} s",
        )
        for holder in holders
    ]
    print(*aligned(lines), sep="\n")
    return RIGHT


COMMAND = Command(_add_arguments, _run)
