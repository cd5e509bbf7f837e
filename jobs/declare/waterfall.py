"""The declaration of a waterfall: vendors of the same columns, asked one after the other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from jobs.declare.lookup import Lookup, enclosed
from jobs.declare.values.type_checks import require_name, require_types
from jobs.errors import DeclarationError, naming
from jobs.schema import columns as schema
from jobs.schema.records import ChoiceFacts

# what `spill_on` can have, and the status with which a vendor then ends
SPILLS = {"timeout": "timeout", "error": "error", "outage": "not_asked"}


@dataclass(frozen=True, kw_only=True)
class Waterfall:
    """Lookups with the same answer columns: the next one is asked where no answer was accepted.

        Waterfall(name="firm", of=[clearbit, apollo, crawler], accept="confidence >= 0.7")

    A vendor that fails is no miss: the next one is not asked, and the row is a dead letter. Readers
    see the columns once, with `<name>_status`, `<name>_answered_at` and `<name>_vendor`; the
    columns of each vendor are in the run's files.

    Attributes:
        name: Prefix of the columns that it adds: lower-case letters, digits and _.
        of: The lookups, in order; each with its service, price, budget and time to live.
        accept: Spark SQL condition over an answer's columns; null is not accepted. None accepts any
            answer.
        spill_on: After what of a vendor the next one is asked too: "timeout", "error", or "outage",
            with which a vendor that stays down for its `Outage.wait_at_most` stops no run.
    """

    name: str
    of: Sequence[Lookup]
    accept: str | None = None
    spill_on: Sequence[str] = ()

    def __post_init__(self) -> None:
        require_name("waterfall", self.name)
        with naming(f"waterfall {self.name}"):
            require_types(self)
            self._check()

    def _check(self) -> None:
        from jobs.declare.values.key_expressions import columns_in

        if len(self.of) < 2:
            raise DeclarationError(f"of has {len(self.of)} lookups; a waterfall needs at least 2.")
        first = self.of[0]
        for vendor in self.of[1:]:
            if vendor.facts().returns != first.facts().returns:
                raise DeclarationError(
                    f"of: lookup {vendor.name} returns {vendor.returns!r}, and lookup {first.name} "
                    f"{first.returns!r}; all must return the same columns, in the same order."
                )
        for vendor in self.of[:-1]:
            if vendor.cache is None:
                raise DeclarationError(
                    f"of: lookup {vendor.name} has cache=None, and the next vendor is asked by its "
                    "answer, of which a key then has several. Leave its cache on."
                )
        for outcome in self.spill_on:
            if outcome not in SPILLS:
                raise DeclarationError(
                    f"spill_on has {outcome!r}; it can have {', '.join(map(repr, SPILLS))}. A "
                    "service that throttles stops the run, which goes on there later."
                )
        known = {column.name.lower() for column in first.columns}
        for column in () if self.accept is None else columns_in("accept", self.accept):
            if column.lower() not in known:
                raise DeclarationError(
                    f"accept reads {column!r}, which is not a column of an answer: "
                    f"{', '.join(column.name for column in first.columns)}."
                )

    def rungs(self) -> Iterator[Lookup]:
        """Yield the lookups with the conditions under which they are asked."""
        conditions: list[str] = []
        choice = ChoiceFacts(
            name=self.name,
            vendors=tuple(vendor.name for vendor in self.of),
            columns=tuple((column.name, column.spark_type) for column in self.of[0].columns),
            accepted=tuple(map(self._accepted, self.of)),
            spills_outage="outage" in self.spill_on,
        )
        for vendor in self.of:
            condition = [] if vendor.when is None else [enclosed(vendor.when)]
            when = " AND ".join([*conditions, *condition])
            yield replace(vendor, when=when or None, choice=choice, source=self)
            conditions.append(self._leaves_open(vendor))

    def _accepted(self, vendor: Lookup) -> str:
        """Return the condition that the answer of a vendor, which has one, is accepted."""
        if self.accept is None:
            return "true"
        names = {
            column.name.lower(): schema.in_sql(f"{vendor.name}_{column.name}")
            for column in vendor.columns
        }
        return f"coalesce(({renamed(self.accept, names)}), false)"

    def _leaves_open(self, vendor: Lookup) -> str:
        status = schema.published_status(vendor.name)
        spilled = (SPILLS[outcome] for outcome in self.spill_on)
        outcomes = ", ".join(f"'{outcome}'" for outcome in ("miss", "skipped", *spilled))
        if self.accept is None:
            return f"({status} IN ({outcomes}))"
        refused = f"{status} IN ('ok', 'fallback') AND NOT {self._accepted(vendor)}"
        return f"({status} IN ({outcomes}) OR ({refused}))"


def renamed(text: str, names: dict[str, str]) -> str:
    """Return Spark SQL with other columns in place of these, by their names in lower case."""
    import sqlglot
    from sqlglot import expressions as exp

    tree = sqlglot.parse_one(text, read="spark")

    def replaced(node: Any) -> Any:
        if not isinstance(node, exp.Column):
            return node
        column, *fields = node.parts  # as in address.city
        known = names.get(column.name.lower())
        if known is None:
            return node
        found = sqlglot.parse_one(known, read="spark")
        results = [branch.args["true"] for branch in found.args.get("ifs", ())] or [found]
        for result in results if fields else ():
            if isinstance(result, exp.Column):
                result.set("this", exp.Dot.build([result.this, *fields]))
        return found

    return str(tree.transform(replaced).sql(dialect="spark"))


def read_choices(lookups: Sequence[Lookup | Waterfall]) -> Sequence[Lookup]:
    """Return the lookups, with its vendors in place of each waterfall.

    Keys that read columns of a waterfall read the columns of its vendors instead. Anything without
    a waterfall is returned unchanged.
    """
    if not isinstance(lookups, list | tuple) or not any(
        isinstance(lookup, Waterfall) for lookup in lookups
    ):
        return lookups  # type: ignore[return-value]  # checked afterwards
    found: list[Lookup] = []
    names: dict[str, str] = {}
    for lookup in lookups:
        rungs = [*lookup.rungs()] if isinstance(lookup, Waterfall) else [lookup]
        for rung in rungs:
            read = {name.lower() for _, name in rung.columns_read()} & names.keys()
            found.append(_reading(rung, names) if read else rung)
        if isinstance(lookup, Waterfall):
            assert rungs[0].choice is not None
            names |= rungs[0].choice.as_sql()
    return tuple(found)


def _reading(lookup: Lookup, names: dict[str, str]) -> Lookup:
    keys = {part: renamed(text, names) for part, text in lookup.keys.items()}
    when = None if lookup.when is None else renamed(lookup.when, names)
    return replace(lookup, keys=keys, when=when, source=lookup.source or lookup)


def with_variant(lookups: Sequence[Lookup], variant: Lookup) -> list[Lookup | Waterfall]:
    """Return the lookups as the user wrote them up to the lookup of this name, and a variant in its
    place; of its waterfall only the vendors before it.
    """
    as_written = variant.as_written
    variant = replace(variant, keys=as_written.keys, when=as_written.when, choice=None, source=None)
    found: list[Lookup | Waterfall] = []
    for lookup in lookups:
        written = lookup.source or lookup
        if isinstance(written, Waterfall) and lookup.name == variant.name:
            before = [*takewhile(lambda vendor: vendor.name != variant.name, written.of)]
            written = replace(written, of=[*before, variant]) if before else variant
        elif lookup.name == variant.name:
            written = variant
        if all(other is not written for other in found):
            found = [other for other in found if other is not lookup.source] + [written]
        if lookup.name == variant.name:
            return found
    raise AssertionError(variant.name)
