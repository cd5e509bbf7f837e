"""Chains: lookups whose keys or conditions read the answers of lookups before them."""

from collections.abc import Collection, Sequence

from jobs.declare.lookup import Lookup
from jobs.errors import DeclarationError
from jobs.schema import columns as schema


def readable_columns(lookup: Lookup) -> list[str]:
    """Return the columns of a lookup that later lookups may read."""
    return [*(column.name for column in lookup.written), schema.published_status(lookup.name)]


def levels(lookups: Sequence[Lookup]) -> tuple[int, ...]:
    """Return each lookup's level: 0, or one above the highest level whose answers it reads."""
    found: list[int] = []
    for place in range(len(lookups)):
        below = [found[other] for other in lookups_read(lookups, place)]
        found.append(1 + max(below) if below else 0)
    return tuple(found)


def lookups_read(lookups: Sequence[Lookup], place: int) -> list[int]:
    """Return the places of the lookups whose answers or status the lookup at `place` reads."""
    read = {column.lower() for _, column in lookups[place].columns_read()}  # parsed once
    return [
        other
        for other in range(place)
        if not read.isdisjoint(name.lower() for name in readable_columns(lookups[other]))
    ]


def lookups_below(lookups: Sequence[Lookup], place: int) -> set[int]:
    """Return the places of the lookups on whose answers the lookup at `place` depends."""
    read = set(lookups_read(lookups, place))
    return read.union(*(lookups_below(lookups, other) for other in read))


def with_lookups_read(lookups: Sequence[Lookup], place: int) -> list[Lookup]:
    """Return the lookup at `place` with those whose answers it reads, at any level, in order; a
    vendor of a waterfall with the others of it.
    """
    wanted, new = set[int](), {place}
    while new:
        wanted |= new
        choices = {lookups[place].choice for place in new} - {None}
        new = {place for place, lookup in enumerate(lookups) if lookup.choice in choices}
        new = new.union(*(lookups_below(lookups, place) for place in wanted)) - wanted
    return [lookups[place] for place in sorted(wanted)]


def places_read(lookups: Sequence[Lookup]) -> frozenset[int]:
    """Return the places of the lookups that any other lookup reads."""
    return frozenset(
        other for place in range(len(lookups)) for other in lookups_read(lookups, place)
    )


def personal_lookups(lookups: Sequence[Lookup], pii: Collection[str]) -> frozenset[str]:
    """Return the names of the lookups with personal keys: those that read a personal column, or an
    answer of a lookup with a personal key.
    """
    personal: list[Lookup] = []
    for lookup in lookups:
        columns = [*pii, *(name for other in personal for name in readable_columns(other))]
        if lookup.reads(columns):
            personal.append(lookup)
    return frozenset(lookup.name for lookup in personal)


def check_chains(lookups: Sequence[Lookup]) -> None:
    """Check that each lookup reads only answers that are known before its first call.

    Raises:
        DeclarationError: It reads its own or a later lookup's answer, the time of an answer, or a
            lookup without a cache.
    """
    written: dict[str, int] = {}
    times = {schema.published_answered_at(lookup.name).lower() for lookup in lookups}
    times |= {lookup.choice.answered_at for lookup in lookups if lookup.choice is not None}
    for place, lookup in enumerate(lookups):
        written |= {column.lower(): place for column in readable_columns(lookup)}
    for place, lookup in enumerate(lookups):
        for field, column in lookup.columns_read():
            where, other = f"lookup {lookup.name}: {field}", written.get(column.lower(), -1)
            if column.lower() in times:
                raise DeclarationError(
                    f"{where} reads {column!r}, which differs after each call; a key may read "
                    "answers and statuses only."
                )
            if other == place:
                raise DeclarationError(
                    f"{where} reads {column!r}, its own column. If the input has {column!r}, "
                    f"rename it in returns and paths, say to {lookup.name}_{column}; else change "
                    "the key."
                )
            if other > place:
                raise DeclarationError(
                    f"{where} reads {column!r}, lookup {lookups[other].name}'s column; a lookup "
                    "reads only lookups before it. Change the key, or the order of lookups."
                )
            if other >= 0 and lookups[other].cache is None:
                raise DeclarationError(
                    f"{where} reads {column!r}, and lookup {lookups[other].name} has cache=None: "
                    "its rows would have several answers for a key. Leave its cache on."
                )
