"""python -m tests.simulation: plays nights. `make simulate` runs it."""

import argparse
import faulthandler
import gc
import os
import pathlib
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator

from tests.simulation.planting import plant

if "--plant" in sys.argv:  # before any module of the product is loaded
    plant(sys.argv[sys.argv.index("--plant") + 1])

from tests.simulation.kinds import KINDS, Kind, Night
from tests.simulation.outcome import Outcome
from tests.simulation.planted import try_faults
from tests.simulation.shortening import shorten

ENVIRONMENT = ("HOME", "LANG", "PATH", "TMPDIR")  # variables that nights keep
LONG = "# Long: "  # before a kept night that takes a second or more
HANGS_AFTER = 1200  # s of real time in one night, at a low priority on a busy machine too


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="one night")
    parser.add_argument("--seeds", default="20", help="so many nights, or FROM:TO")
    parser.add_argument("--hours", type=float, help="nights of fresh seeds for so long")
    parser.add_argument("--night", type=pathlib.Path, help="a file with one night as JSON")
    parser.add_argument(
        "--kept", action="store_true", help="the nights of seeds.txt, which have failed once"
    )
    parser.add_argument("--short", action="store_true", help="without those that take a second")
    parser.add_argument(
        "--publishing", action="store_true", help="nights of publishing, in place of calls"
    )
    parser.add_argument(
        "--jobs", action="store_true", help="nights of vendor jobs, in place of calls"
    )
    parser.add_argument(
        "--shorten",
        action="store_true",
        help="of the first night: leave out what it fails without",
    )
    parser.add_argument(
        "--plant", metavar="FAULT", help="of faults.toml: put it into the product first"
    )
    parser.add_argument(
        "--planted",
        nargs="*",
        metavar="FAULT",
        help="try these deliberate faults, or all of them",
    )
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument(
        "--table",
        type=pathlib.Path,
        metavar="FILE",
        help="keep a table of the faults that struck",
    )
    parser.add_argument("--first", action="store_true", help="end with the first night that fails")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[str]:
    """The kinds of nights that are played, in order; kept nights of two kinds in one process."""
    named = [name for name in KINDS if getattr(options, name, False)]
    return named or (["jobs", "calls"] if options.kept else ["calls"])


def nights(options: argparse.Namespace, kind: Kind) -> Iterator[Night]:
    draw_night = kind.draw
    if options.night is not None:
        yield kind.of_json(options.night.read_text())
    elif options.kept:
        yield from kept_nights(kind, short=options.short)
    elif options.seed is not None:
        yield draw_night(options.seed)
    elif options.hours is not None:
        seed, end = int(time.time()), time.monotonic() + 3600 * options.hours
        while time.monotonic() < end:
            yield draw_night(seed)
            seed += 1
    else:
        first, colon, last = options.seeds.partition(":")
        yield from map(draw_night, range(int(first), int(last)) if colon else range(int(first)))


def kept_nights(kind: Kind, *, short: bool = False) -> Iterator[Night]:
    """The shortened nights that have shown a fault; a line that begins with # says which.

    short: Without the long ones.
    """
    comment = ""
    for line in kind.kept.read_text().splitlines():
        if line.startswith("#"):
            comment = line
        elif line and not (short and comment.startswith(LONG)):
            yield kind.of_json(line)


def report(night: Night, outcome: Outcome, *, trace: bool) -> None:
    if trace:
        print("\n".join(outcome.trace))
        print(
            f"night {night.seed}: digest {outcome.digest:012x}, {outcome.steps} steps, "
            f"{outcome.runs}"
        )
    for failure in outcome.failures[:2]:
        print(f"NIGHT {night.seed} FAILED at {failure}", flush=True)


def table_of(nights: str, faults: Counter[str], struck_in: Counter[str], failed: int) -> str:
    rows = "".join(
        f"| {name} | {number} | {struck_in[name]} |\n" for name, number in faults.most_common()
    )
    return f"""# How often each kind of fault struck

`make simulate SEEDS=FROM:TO ARGS="--table FILE"` writes this table: {nights}; {failed} failed.

| fault | times | in nights |
|---|---|---|
{rows}"""


def main() -> int:
    options = arguments()
    if options.planted is not None:
        return try_faults(options.planted)
    kinds = [KINDS[name]() for name in chosen(options)]
    for kind in kinds:
        kind.install()
    gc.collect()
    gc.freeze()
    gc.disable()
    faults: Counter[str] = Counter()
    struck_in: Counter[str] = Counter()  # nights
    count = failed = charges = steps = digest = 0
    virtual, cpu = 0.0, time.process_time()
    with tempfile.TemporaryDirectory(prefix="tidegate-nights-", dir=_fast_folder()) as base:
        tempfile.tempdir = base  # a night that waits for another program's lock is not the same
        if options.shorten:
            night, outcome = shorten(next(nights(options, kind)), kind.play, pathlib.Path(base))
            report(night, outcome, trace=options.trace)
            print(night.as_json())
            return 1
        played = ((kind, night) for kind in kinds for night in nights(options, kind))
        for kind, night in played:
            # something real was waited for
            faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
            outcome = kind.play(night, pathlib.Path(base), trace=options.trace)
            report(night, outcome, trace=options.trace)
            count += 1
            failed += bool(outcome.failures)
            charges, steps, virtual = (
                charges + outcome.charges,
                steps + outcome.steps,
                virtual + outcome.seconds,
            )
            faults += outcome.faults
            struck_in.update(name for name, number in outcome.faults.items() if number)
            if options.table is not None:
                options.table.write_text(
                    table_of(f"{count} nights, the last {night.seed}", faults, struck_in, failed)
                )
            digest = zlib.crc32(f"{outcome.digest:012x}".encode(), digest)
            if failed and options.first:
                break
    cpu = time.process_time() - cpu
    struck = ", ".join(f"{number} {name}" for name, number in faults.most_common())
    print(
        f"CPU {cpu:.1f} s, {60 * count / cpu:.0f} nights a minute; {steps} steps, "
        f"{virtual / 3600:.1f} virtual hours"
    )
    print(
        f"{count} nights, {failed} failed; faults: {struck or 'none'}; {charges} {kind.counts}; "
        f"digest {digest:08x}"
    )
    return 1 if failed else 0


def _fast_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a night
        # each client reads them all
        few = {name: value for name, value in os.environ.items() if name in ENVIRONMENT}
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, command, few | {"PYTHONHASHSEED": "0"})
    code = main()
    sys.stdout.flush()
    os._exit(code)  # without waiting for the threads that carried the nights
