"""Tries the deliberate faults of faults.toml, each in its own process, and keeps a table of the
nights they took.
"""

import pathlib
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.planting import FAULTS_FILES, ROOT, planted_faults

FIRST_SEEDS = {"calls": 2000, "publishing": 10_000, "jobs": 2000}  # by the kind of nights
MOST = 1000  # nights for one fault
HEAD = """# Deliberate faults, and how many nights it took to find each

`make simulate ARGS=--planted` writes this table: it puts each fault of `faults.toml` into the product and plays nights
from seed {first} on until one fails, at most 1,000. `ARGS="--planted NAME ..."` tries some again. A fault that was not
found shows how many nights were played; those of `faults.toml` that are missing here were not tried yet.

| fault | mechanism | nights | seed | what the night said, or why none finds it |
|---|---|---|---|---|
"""
_ROW = re.compile(r"^\| (\w+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \| (.*) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Found:
    """nights: until it was found; 0: it was not."""

    nights: int
    seed: int
    message: str


def try_faults(names: Sequence[str], most: int = MOST) -> int:
    """Try these faults, or all, and write the table. Returns how many were not found and say no
    reason.
    """
    faults = planted_faults()
    unexplained = 0
    for name in names or faults:
        found = try_fault(name, most)
        if not found.nights:
            unexplained += not faults[name].unfound
        print(f"{name}: {found.nights or 'not found'} ({found.message})", flush=True)
        keep(name, found)
    return unexplained


def try_fault(name: str, most: int) -> Found:
    kind = planted_faults()[name].kind
    first = FIRST_SEEDS[kind]
    seeds = f"{first}:{first + most}"
    command = [
        sys.executable,
        "-m",
        "tests.simulation",
        "--plant",
        name,
        "--seeds",
        seeds,
        "--first",
    ]
    command += [f"--{kind}"] if kind != "calls" else []
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    failed = re.search(r"^NIGHT (\d+) FAILED at [\d.]+: (.*)", played.stdout, re.MULTILINE)
    if failed:
        return Found(int(failed[1]) - first + 1, int(failed[1]), failed[2][:90])
    if played.returncode:
        return Found(
            1, first, f"the process ended: {(played.stderr or played.stdout).strip()[-80:]}"
        )
    return Found(0, 0, planted_faults()[name].unfound or f"not found in {most} nights")


def keep(name: str, found: Found) -> None:
    """Write one fault's row into the table of its kind, and what the rows say together below it."""
    kind = planted_faults()[name].kind
    faults = {name: fault for name, fault in planted_faults().items() if fault.kind == kind}
    table = table_of(kind)
    text = table.read_text() if table.exists() else ""
    rows = {row[1]: row[0] for row in _ROW.finditer(text) if row[1] in faults}
    message = found.message.replace("|", "/").replace("\n", " ")
    nights, seed = (found.nights, found.seed) if found.nights else ("-", "-")
    rows[name] = f"| {name} | {faults[name].mechanism} | {nights} | {seed} | {message} |"
    in_order = [rows[name] for name in faults if name in rows]
    head = HEAD.format(first=FIRST_SEEDS[kind])
    table.write_text(head + "\n".join(in_order) + f"\n\n{_summary(in_order)}\n")


def table_of(kind: str) -> pathlib.Path:
    """The table of the faults that nights of this kind are to find, beside their list."""
    return FAULTS_FILES[kind].with_name("planted.md")


def _summary(rows: Sequence[str]) -> str:
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    nights = [int(row[3]) for row in cells if row[3].isdigit()]
    middle = (
        f"; the median is {statistics.median(nights):g} nights, the most {max(nights)}"
        if nights
        else ""
    )
    return f"{len(nights)} of {len(rows)} faults are found{middle}."
