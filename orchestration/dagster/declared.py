"""An enrichment as Dagster knows it: the names of its assets, its jobs and its days."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

import dagster as dg

from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.discovery import Discovered, discover
from jobs.declare.finding.upstreams import input_folders, output_folders
from jobs.declare.values.calendar import HOUR, day_begin
from jobs.declare.values.table_conflicts import LETTERS, refuse_conflicts
from jobs.errors import DeclarationError
from jobs.schema.records import DeclaredFacts
from orchestration.dagster.names import Names, allowed, spelled

Days = dg.TimeWindowPartitionsDefinition | dg.StaticPartitionsDefinition
FIRST_TO_END = "Etc/GMT-14"  # a zone in which each day ends no later than in any other


@dataclass(frozen=True)
class Declared:
    """An enrichment with its names in Dagster.

    Attributes:
        reference: `module:name`.
        input_name: The name of its input; empty for the last folder of its path.
        names: The names of assets and jobs.
        upstream: The enrichment that publishes its input, if any.
        input_days: The partitions of its input, which may have further readers; None: its days.
    """

    reference: str
    enrichment: Enrichment
    input_name: tuple[str, ...] = ()
    names: Names = field(default_factory=Names)
    upstream: "Declared | None" = None
    input_days: Days | None = None

    @cached_property
    def facts(self) -> DeclaredFacts:
        return self.enrichment.facts()

    @property
    def name(self) -> str:
        return self.enrichment.name

    @property
    def key(self) -> dg.AssetKey:
        return self.names.table(self.enrichment)

    @property
    def group(self) -> str:
        return self.names.group(self.enrichment)

    @property
    def raw_key(self) -> dg.AssetKey:
        if self.upstream is not None and not self.enrichment.input.asset_key:
            return self.upstream.key
        return self.names.input(
            self.enrichment, self.input_name or input_folders(self.enrichment)[-1:]
        )

    @property
    def input_is_foreign(self) -> bool:
        """Whether another asset of the project writes the input."""
        return self.upstream is not None or bool(self.enrichment.input.asset_key)

    def beside(self, name: str) -> dg.AssetKey:
        """Return the key of a summary, of windows, or of dead letters."""
        return self.names.beside(self.enrichment, name)

    @property
    def dead_letters_key(self) -> dg.AssetKey:
        return self.beside(f"{self.key.path[-1]}{LETTERS}")

    @property
    def dead_letters_table(self) -> str:
        return f"{self.enrichment.output.path}{LETTERS}"

    @property
    def keys(self) -> list[dg.AssetKey]:
        """The keys of all tables that it writes."""
        letters = [self.dead_letters_key] if self.has_dead_letters else []
        windows = [self.beside(window.name) for window in self.enrichment.windows]
        summaries = [self.beside(summary.name) for summary in self.enrichment.summaries]
        return [self.key, *letters, *windows, *summaries]

    @property
    def has_dead_letters(self) -> bool:
        return any(lookup.dead_letters for lookup in self.facts.lookups)

    @property
    def days(self) -> Days:
        """A partition per day of its zone, per hour of UTC, or per name; perhaps without an end."""
        return partitions_of([self.enrichment])

    @property
    def job_name(self) -> str:
        return self.names.job(self.enrichment)


def partitions_of(readers: Sequence[Enrichment]) -> Days:
    """Return the days, hours or names that any of these enrichments has."""
    every = readers[0].input.every
    if not isinstance(every, str):
        names = [
            reader.input.every for reader in readers if not isinstance(reader.input.every, str)
        ]
        return dg.StaticPartitionsDefinition([*dict.fromkeys(chain.from_iterable(names))])
    ends = [(reader.end, reader.zone) for reader in readers if reader.end is not None]
    is_ending = len(ends) == len(readers)
    if every == "day":
        zones = {reader.zone for reader in readers}
        return dg.DailyPartitionsDefinition(
            start_date=min(reader.start for reader in readers),
            end_date=max(end for end, _ in ends) if is_ending else None,
            timezone=zones.pop() if len(zones) == 1 else FIRST_TO_END,
        )
    return dg.HourlyPartitionsDefinition(
        start_date=min(day_begin(reader.start, reader.zone) for reader in readers),
        end_date=max(_next_whole_hour(day_begin(*end)) for end in ends) if is_ending else None,
        timezone="UTC",
        fmt=HOUR,
    )


def _next_whole_hour(moment: dt.datetime) -> dt.datetime:
    """Return the moment, or the hour of UTC after it: some zones begin their days at half past."""
    return moment + (dt.datetime.min.replace(tzinfo=dt.UTC) - moment) % dt.timedelta(hours=1)


def with_distinct_inputs(all_declared: Sequence[Declared]) -> list[Declared]:
    """Return the enrichments, each with the enrichment that publishes its input, if any. Other
    inputs are named by as few of their last folders as distinguish them.
    """
    folders = {declared.name: input_folders(declared.enrichment) for declared in all_declared}
    published = {
        place: declared
        for declared in all_declared
        for place in output_folders(declared.enrichment)
    }
    paths = set(folders.values())

    def name(path: tuple[str, ...]) -> tuple[str, ...]:
        alike = [other for other in paths if other != path and other[-1:] == path[-1:]]
        last = next(
            path[-length:]
            for length in range(1, len(path) + 1)
            if length == len(path) or all(other[-length:] != path[-length:] for other in alike)
        )
        is_taken = any(allowed(other[-len(last) :]) == allowed(last) for other in paths - {path})
        return spelled(last) if is_taken else last

    def placed(declared: Declared) -> Declared:
        path = folders[declared.name]
        upstream = published.get(path)
        readers = [other.enrichment for other in all_declared if folders[other.name] == path]
        days = partitions_of(readers) if upstream is None else upstream.days
        return replace(declared, input_name=name(path), upstream=upstream, input_days=days)

    return [placed(declared) for declared in all_declared]


def declared_as(all_declared: Sequence[Declared], name: str) -> Declared:
    """Return the enrichment of this name. Raises dagster.Failure with the known names."""
    by_name = {declared.name: declared for declared in all_declared}
    if name not in by_name:
        raise dg.Failure(
            f"no enrichment is called {name!r}. There are: {', '.join(by_name)}.",
            allow_retries=False,
        )
    return by_name[name]


def shared_name(all_declared: Sequence[Declared], name: str) -> str:
    """Return the name of a job, an op or a sensor that all enrichments share."""
    return (all_declared[0].names if all_declared else Names()).shared(name)


def enrichments_in(package: str, names: Names | None = None) -> list[Declared]:
    """Return every enrichment of the package's modules, by name. Raises DeclarationError for two
    with the same name, table or asset.
    """
    return declared_together(discover(package), names)


def declared_together(found: Sequence[Discovered], names: Names | None = None) -> list[Declared]:
    """Return these enrichments by name. Raises DeclarationError as `enrichments_in`."""
    refuse_conflicts(found)
    all_declared = sorted(
        (Declared(*discovered, names=names or Names()) for discovered in found),
        key=lambda declared: declared.name,
    )
    known: dict[dg.AssetKey, Declared] = {}
    for declared in all_declared:
        for key in declared.keys:
            if (other := known.setdefault(key, declared)) is not declared:
                raise DeclarationError(
                    f"{other.reference} and {declared.reference} both have the asset "
                    f"{key.to_user_string()}; rename the summary, the window or the enrichment of "
                    "that name, or override Names.beside."
                )
    return all_declared
