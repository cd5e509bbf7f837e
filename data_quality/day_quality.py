"""What a run uses of the checks: the module to import, the verdict store and the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.schema.records import DayRecord, DeclaredFacts, UnwrittenRun

CHECKS = f"{__package__}.day:check"  # the package has another name in the wheel
REPORTS = Path("data/reports")


@dataclass(frozen=True)
class DayQuality:
    checks: str = CHECKS

    def unready(self, declared: DeclaredFacts) -> str:
        """Return a sentence why a declared check is unknown, or why verdicts or the report cannot
        be stored; else empty.
        """
        from data_quality import verdict_store
        from data_quality.declared_checks import wrong_severity
        from data_quality.report import pages

        if wrong := wrong_severity(declared):
            return wrong
        try:
            verdict_store.require()
            pages.require(REPORTS / declared.enrichment)
        except verdict_store.VerdictsRefused as error:
            return str(error)
        except OSError as error:
            return f"its report cannot be written: {error}."
        return ""

    def keep(self, record: DayRecord) -> None:
        """Store the verdicts of a run. Raises VerdictsRefused with a user-facing sentence."""
        from data_quality import verdict_store

        verdict_store.save(record)

    def render(
        self, enrichment: str, records: Sequence[DayRecord], unwritten: Sequence[UnwrittenRun]
    ) -> None:
        from data_quality.report import pages

        pages.render(enrichment, records, REPORTS / enrichment, unwritten)
