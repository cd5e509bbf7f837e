"""`tidegate jobs`: lists the jobs of vendors, cancels them, and lets go of lost ones."""

import argparse

from jobs.errors import DeclarationError
from tidegate.commands.command import RIGHT, Command, add_json_object, add_package, print_json
from tidegate.commands.lines import aligned

ACTIONS = ("list", "show", "cancel", "forget")
HEADINGS = ("token", "lookup", "day", "submitted", "items", "state", "cost")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=ACTIONS,
        default="list",
        help="list (open jobs, and with --all those that ended), show TOKEN, cancel TOKEN at the "
        "vendor, or forget TOKEN: give up a job whose submission was lost",
    )
    parser.add_argument(
        "token", nargs="?", metavar="TOKEN", help="token of a job, as list prints it"
    )
    parser.add_argument("--all", action="store_true", help="list also jobs that ended")
    add_package(parser)
    add_json_object(parser)


def _run(options: argparse.Namespace) -> int:
    # imports Arrow and aiohttp
    from jobs.commands import vendor_jobs as work

    if (options.action == "list") == (options.token is not None):
        raise DeclarationError(
            f"tidegate jobs {options.action}: "
            + ("it takes no token." if options.token else "name the token of a job.")
        )
    match options.action:
        case "cancel":
            print(work.cancel_job(options.package, options.token))
            return RIGHT
        case "forget":
            print(work.forget_job(options.package, options.token))
            return RIGHT
        case "show":
            found = [work.find_job(options.package, options.token).facts()]
        case _:
            jobs = work.find_jobs(options.package, are_open=not options.all)
            found = sorted((job.facts() for job in jobs), key=lambda job: (job.at, job.token))
    if options.json:
        print_json(work.Jobs(tuple(found)))
    elif options.action == "show":
        for name, value in vars(found[0]).items():
            print(f"{name:<11} {'' if value is None else value}")
    elif not found:
        print(
            "No job is open; `tidegate jobs --all` lists those that ended."
            if not options.all
            else "There are no jobs."
        )
    else:
        lines = [
            (job.token, job.lookup, f"{job.enrichment} {job.day}", job.at, f"{job.items:,}",
             job.state, "" if job.cost is None else f"{job.cost} {job.currency}")
            for job in found
        ]  # fmt: skip
        print(*aligned([HEADINGS, *lines]), sep="\n")
    return RIGHT


COMMAND = Command(_add_arguments, _run)
