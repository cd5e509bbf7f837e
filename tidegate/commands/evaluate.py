"""`tidegate eval`: compares variants of a lookup, such as two prompts, on a sample of rows."""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from jobs.commands.evaluating.evaluate import Evaluation, Variant, evaluate, find_variant
from jobs.declare.finding.discovery import Discovered
from jobs.declare.lookup import Lookup
from jobs.declare.values.type_checks import require_count
from jobs.errors import DeclarationError
from jobs.wording import counted, percent
from tidegate.commands.command import (
    Command,
    add_enrichment,
    add_json_object,
    given_or_last_day,
    named,
    print_found,
)
from tidegate.commands.lines import aligned, entry

SHOWN = 10  # rows that differ


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    parser.add_argument(
        "--with",
        dest="variant",
        metavar="LOOKUP",
        help="variant of a lookup, with the same name: a variable in the enrichment's module, or "
        "module:name",
    )
    parser.add_argument("--sample", type=int, default=200, help="number of rows (default: 200)")
    parser.add_argument(
        "--against", metavar="FILE", help="Parquet file with row_id and the right answers"
    )
    parser.add_argument(
        "--day", metavar="YYYY-MM-DD", help="day of the input (default: the last one)"
    )
    parser.add_argument(
        "--lookup",
        metavar="NAME",
        help="lookup to evaluate, without --with (needed if there are several)",
    )
    parser.add_argument(
        "--show-personal", action="store_true", help="also show personal ids and answers"
    )
    add_json_object(parser)


def _run(options: argparse.Namespace) -> int:
    found = named(options)
    declared = found.enrichment
    require_count("--sample", options.sample)
    variants = _variants(found, options)
    day = given_or_last_day(options, declared)
    progress = _Progress()
    evaluation = evaluate(
        declared, variants, day, sample=options.sample, against=options.against,
        report=progress.show, show_personal=options.show_personal,
    )  # fmt: skip
    progress.end()
    return print_found(options, evaluation, evaluation_lines(evaluation, options.against))


def _variants(found: Discovered, options: argparse.Namespace) -> list[tuple[str, Lookup]]:
    lookups = {lookup.name: lookup for lookup in found.enrichment.lookups}
    if options.variant is not None:
        module = found.reference.partition(":")[0]
        variant = find_variant(found.enrichment, options.variant, module)
        return [(variant.name, lookups[variant.name]), (options.variant, variant)]
    name = options.lookup or (next(iter(lookups)) if len(lookups) == 1 else None)
    if name not in lookups:
        raise DeclarationError(
            f"{found.enrichment.name}: --lookup must name one lookup: {', '.join(lookups)}."
        )
    return [(name, lookups[name])]


class _Progress:
    """A bar on stderr for each variant, if a person can see it."""

    def __init__(self) -> None:
        from tidegate.frames import ProgressBar, is_watched

        self._bar = ProgressBar(is_shown=is_watched())
        self._name = ""

    def show(self, name: str, event: dict[str, Any]) -> None:
        if name != self._name:
            self.end()
            self._name = name
            print(f"asking {name}", file=sys.stderr, flush=True)
        self._bar.show(event)

    def end(self) -> None:
        self._bar.end()


def evaluation_lines(found: Evaluation, against: str | None) -> Iterator[str]:
    """Yield the lines of an evaluation: a table of the variants, and rows that differ."""
    labels = f", labels of {against}" if against else ""
    yield f"{found.enrichment}  {found.day}  {counted(found.rows, 'row')}{labels}"
    outcomes = dict.fromkeys(name for variant in found.variants for name in variant.outcomes)
    lines = [("", *(variant.name for variant in found.variants))]
    lines += [
        (name, *(f"{variant.outcomes.get(name, 0):,}" for variant in found.variants))
        for name in outcomes
    ]
    for column in dict.fromkeys(name for variant in found.variants for name in variant.as_labelled):
        lines.append(
            (f"{column} as labelled",
             *(_share(variant.as_labelled[column], found.rows) for variant in found.variants))
        )  # fmt: skip
    if against:
        lines.append(
            ("all as labelled",
             *(_share(variant.all_as_labelled or 0, found.rows) for variant in found.variants))
        )  # fmt: skip
    lines += [
        ("calls", *(f"{variant.calls:,}" for variant in found.variants)),
        ("paid now", *(variant.paid for variant in found.variants)),
        ("cost of 1,000", *(variant.cost_of_1000 for variant in found.variants)),
        ("latency p50, p99", *(map(_latency, found.variants))),
    ]
    yield from aligned([line for line in lines if any(line[1:])], right=range(1, 3))
    yield ""
    if found.all_agree is not None:
        shares = (f"{name} in {_share(many, found.rows)}" for name, many in found.agree.items())
        alike = _share(found.all_agree, found.rows)
        yield from entry("", f"the variants agree in {alike} of the rows; {', '.join(shares)}", 0)
    from_what = "from their labels" if len(found.variants) == 1 else "between the variants"
    if found.differing or against or len(found.variants) > 1:
        differ = "differs" if len(found.differing) == 1 else "differ"
        yield f"{counted(len(found.differing), 'row')} {differ} {from_what}"
    for row in found.differing[:SHOWN]:
        yield from entry("", _differing(row), 2)
    if len(found.differing) > SHOWN:
        yield f"  ... and {len(found.differing) - SHOWN:,} more, with --json"


def _share(part: int, rows: int) -> str:
    return percent(part / rows, 1).replace("%", " %")


def _latency(variant: Variant) -> str:
    return "" if variant.p50_ms is None else f"{variant.p50_ms:,.0f}, {variant.p99_ms:,.0f} ms"


def _differing(row: dict[str, Any]) -> str:
    identity = " ".join(f"{name}={value}" for name, value in row["row"].items())
    changes = []
    for name, answers in row["answers"].items():
        label = f", label {row['label'][name]}" if name in row["label"] else ""
        changes.append(f"{name}: {' | '.join(str(answer) for answer in answers)}{label}")
    return f"{identity}  {'; '.join(changes)}"


COMMAND = Command(_add_arguments, _run, needs=("spark",))
