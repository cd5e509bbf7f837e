"""`tidegate forget`: removes keys from ledger, tables and evidence; prints a certificate."""

import argparse

from data_quality.day_quality import DayQuality
from jobs.commands import ledgers
from jobs.commands.forgetting import forget, forgotten_keys
from jobs.commands.forgetting.forget import Certificate
from jobs.declare.finding.discovery import discover
from jobs.declare.lookup import Lookup
from jobs.errors import DeclarationError
from jobs.wording import counted
from tidegate.commands.command import RIGHT, Command, add_package


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lookup", metavar="LOOKUP", help="lookup whose keys are forgotten")
    parser.add_argument(
        "--key-file",
        metavar="CSV",
        help="file with a key per line; its first line names the parts of the key",
    )
    parser.add_argument(
        "--key",
        action="append",
        nargs="+",
        metavar="NAME=VALUE",
        help="one key, with all its parts; may be repeated",
    )
    add_package(parser)


def _run(options: argparse.Namespace) -> int:
    declared = discover(options.package)
    kept = ledgers.named(declared, options.lookup)
    lookup = kept[0].lookup
    if (options.key_file is None) == (options.key is None):
        raise DeclarationError(
            "name the keys: --key-file keys.csv, or --key NAME=VALUE for each part of one."
        )
    given = options.key or ()
    keys = (
        forgotten_keys.read(lookup, options.key_file)
        if options.key_file
        else [_key(lookup, text) for text in given]
    )
    _say(forget.forget(kept, keys, DayQuality(), declared=declared))
    return RIGHT


def _key(lookup: Lookup, parts: list[str]) -> tuple[str, ...]:
    given = dict(part.split("=", 1) for part in parts if "=" in part)
    if len(given) != len(parts) or set(given) != set(lookup.keys):
        wanted = " ".join(f"{name}=VALUE" for name in lookup.keys)
        raise DeclarationError(
            f"--key {' '.join(parts)}: write every part of the key of {lookup.name}: {wanted}."
        )
    return tuple(given[name] for name in lookup.keys)


def _say(done: Certificate) -> None:
    print(f"Forgotten: {counted(done.keys, 'key')} of lookup {done.lookup}")
    print(
        f"  ledger: {done.stored:,} of them stored; {counted(done.ledger_files, 'file')} written "
        "again or deleted"
    )
    for table in done.tables:
        days = ", ".join(table.days) or "no day"
        print(
            f"  {table.enrichment}: {counted(table.rows, 'row')} deleted ({days}), from audit "
            "and dead letters too"
        )
        print(
            f"    {counted(table.old_files, 'file')} of old versions and "
            f"{counted(table.runs, 'folder of a run', 'folders of runs')} "
            f"deleted; evidence taken out of {counted(table.records, 'record')} and the reports; "
            f"{counted(table.logs, 'log of a run', 'logs of runs')} deleted"
        )
    if done.former:
        print(
            f"Not looked at, because no declaration names them now: {', '.join(done.former)}. "
            "Delete them, run the days again, or declare them again; then forget once more."
        )
    if done.downstream:
        print(
            f"Not looked at, because their input is made of these tables: "
            f"{', '.join(done.downstream)}. Run these days of them again, then "
            "`tidegate vacuum NAME --keep-days 0`."
        )
    if done.apart:
        print(
            f"Not looked at, because they do not use lookup {done.lookup}, but have a personal "
            f"column of the same name: {', '.join(done.apart)}. If their input has such rows, "
            "remove them there, run these days again, then `tidegate vacuum NAME --keep-days 0`."
        )
    print(f"Not covered: {done.not_covered}.")


COMMAND = Command(_add_arguments, _run)
