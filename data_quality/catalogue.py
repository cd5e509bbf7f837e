"""The checks of an enrichment: their names, severities and promises.

Loads without Great Expectations, Spark or pandas, so that Dagster can build its definitions from
it.
"""

import itertools
import re
from dataclasses import dataclass, replace

from data_quality.check import Check, Cure
from data_quality.checks import OF_A_LOOKUP, OF_A_WATERFALL, OF_A_WINDOW, OF_THE_ROW
from jobs.schema.columns import Severity
from jobs.schema.records import DeclaredFacts, ExpectationFacts

LONGEST_NAME = 150  # characters of a check's name; the database of verdicts has 200


@dataclass(frozen=True)
class CheckSpec:
    name: str
    severity: Severity
    description: str
    check: Check | None = None
    expectation: ExpectationFacts | None = None

    @property
    def cure(self) -> Cure:
        return self.check.cure if self.check is not None else Cure.REFRESH


def checks(declared: DeclaredFacts) -> tuple[CheckSpec, ...]:
    """Return every check of a day of this enrichment, in display order.

    A rule without a counterpart in the declaration is absent, so that no check passes without
    judging anything.

    Raises:
        ValueError: `severities` names an unknown check.
    """
    possible: list[Check] = [kind(declared) for kind in OF_THE_ROW]
    possible += [kind(declared, window) for window in declared.windows for kind in OF_A_WINDOW]
    possible += [kind(declared, lookup) for lookup in declared.lookups for kind in OF_A_LOOKUP]
    possible += [kind(declared, choice) for choice in declared.choices for kind in OF_A_WATERFALL]
    specs = [
        CheckSpec(check.full_name, check.severity, check.description, check)
        for check in possible
        if check.wanted
    ]
    specs += [
        CheckSpec(name, wanted.severity, _described(wanted), expectation=wanted)
        for name, wanted in named_expectations(declared)
    ]
    unknown = sorted(set(declared.severities) - {spec.name for spec in specs})
    if unknown:
        names = ", ".join(spec.name for spec in specs)
        raise ValueError(
            f"{declared.enrichment}: severities: no check {unknown[0]!r}. The checks are: {names}."
        )
    return tuple(
        replace(spec, severity=declared.severities.get(spec.name, spec.severity)) for spec in specs
    )


def named_expectations(declared: DeclaredFacts) -> list[tuple[str, ExpectationFacts]]:
    """Return the user's expectations by check names: `<type>__<column>`, numbered if equal."""
    named: dict[str, ExpectationFacts] = {}
    for expectation in declared.expectations:
        columns = [
            str(expectation.arguments[key])
            for key in ("column", "column_A", "column_B", "column_list")
            if key in expectation.arguments
        ]
        allowed = [re.sub(r"\W", "_", column, flags=re.ASCII) for column in columns]
        name = "__".join([expectation.type, *allowed])[:LONGEST_NAME]
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        # a column may end with a number, too
        named[
            next(
                candidate
                for candidate in itertools.chain([name], numbered)
                if candidate not in named
            )
        ] = expectation
    return list(named.items())


def _described(expectation: ExpectationFacts) -> str:
    arguments = ", ".join(f"{name} {value!r}" for name, value in expectation.arguments.items())
    return f"{expectation.type} with {arguments}" if arguments else expectation.type
