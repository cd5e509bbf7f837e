"""What Dagster is told of one day by one run of it: observations, materializations, links, all from plain facts."""

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from data_quality.next_step import Cure, cure
from jobs.errors import LOG_SAYS_MORE, DeclarationError
from jobs.process.day_pipeline import or_warning
from jobs.schema import DayRecord, UnwrittenRun
from jobs.tables import run_records
from jobs.wording import counted
from orchestration import metadata
from orchestration.declared import Declared

REPORTS = Path("data/reports")
IN_WORDS = {"running": "Running", "published": "Published"}  # every other state is told as "Not published"


@dataclass(frozen=True)
class DayEvents:
    """The events of one run of one day."""

    declared: Declared
    day: str
    run_id: str

    @property
    def log(self) -> Path:
        """Takes all that Spark prints."""
        return run_records.spark_log(self.declared.name, self.day, self.run_id)

    @property
    def report(self) -> str:
        return metadata.report_url(self.declared.name, self.day)

    def links(self, *, report: bool = True) -> dict[str, dg.MetadataValue]:
        """report: whether the day has a page by the time that somebody follows its link."""
        return {
            **({"report": dg.MetadataValue.url(self.report)} if report else {}),
            "spark_log": dg.MetadataValue.url(metadata.log_url(self.declared.name, self.day, self.run_id)),
            **metadata.runbook(self.declared),
        }

    def word(
        self, state: str, reason: str, next_step: str, more: Mapping[str, Any] | None = None
    ) -> dg.AssetObservation:
        """Dagster shows no metadata of a failed step and leaves the last success standing: this stands beside it."""
        has_page = state not in IN_WORDS or Path(REPORTS, self.declared.name, self.day, "index.html").exists()
        return dg.AssetObservation(
            asset_key=self.declared.key,
            partition=self.day,
            description=f"{IN_WORDS.get(state, f'Not published ({state})')}: {reason}",
            metadata={  # sentences as text: a run's page hides Markdown behind a click
                "state": state,
                "reason": dg.MetadataValue.text(reason),
                "next_step": dg.MetadataValue.text(next_step),
                "cause": self._cause(state, reason),
                "readers_see": metadata.readers_see(self.declared.facts, self.day),
                **self.links(report=has_page or state == "published"),
                **(more or {}),
            },
        )

    def save_unwritten(self, state: str, reason: str, next_step: str, began: str) -> None:
        """Keep how the run ended, for the reports. A disk that is full keeps nobody from hearing of it in Dagster."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        run = UnwrittenRun(self.declared.name, self.day, self.run_id, state, reason, next_step, began, now)
        with suppress(OSError):
            run_records.save_unwritten(run)

    def _cause(self, state: str, reason: str) -> str:
        """The same words for all days that fail for the same reason: whoever is told once per cause counts by it."""
        services = [lookup.service_name for lookup in self.declared.enrichment.lookups]
        begins = reason.removeprefix(f"{self.declared.name}: service ")  # as of one that was down before the first call
        for service in services:
            if state.startswith("stopped") and begins.startswith((f"{service} ", f"{service}:")):
                return f"{service} {state}"  # whoever asks it
        cause = reason.partition(LOG_SAYS_MORE)[0]  # the log is of one run
        return f"{self.declared.name} {state}: {cause.replace(self.day, '<day>')}"

    def of_record(
        self, record: DayRecord, reported: Mapping[str, Any]
    ) -> Iterator[dg.AssetObservation | dg.AssetMaterialization]:
        """What came of the day, in numbers too: red or green; what was read for it, how many rows are dead letters.

        told: its figures.
        """
        if record.state == "published":
            ran = f"{counted(len(record.verdicts), 'check')} ran on {counted(record.figures.rows_out, 'row')}."
            yield self.word("published", ran, "Nothing.", reported)
        else:
            cause = f"{self.declared.name} held back: {', '.join(_red(record)) or record.reason}"
            yield self.word("held back", record.reason, mend(self.declared, record), {"cause": cause, **reported})
        yield dg.AssetObservation(
            asset_key=self.declared.raw_key,
            partition=self.day,
            metadata={"dagster/row_count": record.figures.rows_in, "files": len(record.facts.input_files)},
        )
        if record.state == "published" and self.declared.has_dead_letters:
            yield dg.AssetMaterialization(
                asset_key=self.declared.dead_letters_key,
                partition=self.day,
                description=f"{record.dead_letters:,} of {record.figures.rows_out:,} rows.",
                metadata={"dagster/row_count": record.dead_letters, "path": self.declared.dead_letters_table},
            )

    def published(self, record: DayRecord, reported: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of the day's materialization. told: its figures."""
        return {
            "state": "published",
            "readers_see": metadata.readers_see(self.declared.facts, self.day),
            **metadata.published_metadata(self.declared, record),
            **reported,
            **self.links(),
        }


def run_again(declared: Declared) -> str:
    """How to have the day, as the end of a sentence. The button of the asset alone makes no summaries."""
    with_summaries = f" by the job {declared.job_name}, with its summaries" if declared.enrichment.summaries else ""
    return f"materialize the day again{with_summaries}; the days published before stay as they are."


def mend(declared: Declared, record: DayRecord) -> str:
    """The next step of a day that is held back."""
    match cure(record, declared.facts):
        case Cure.REPLAY:
            return (
                f"Open the report, mend the cause, then run the job {declared.name}_replay for the day: it asks again "
                "for the dead letters and nothing else; the days published before stay as they are."
            )
        case Cure.REFRESH:
            return (
                "Open the report, mend the cause; the ledger keeps the answers: where some are wrong have the job "
                f"refresh_answers, with do: true, ask anew for them; then {run_again(declared)}"
            )
        case Cure.RUN_AGAIN:
            return f"Open the report, mend the cause, then {run_again(declared)}"


def _red(record: DayRecord) -> list[str]:
    return [verdict.check for verdict in record.verdicts if verdict.holds_back]


def render_report(enrichment: str) -> None:
    """The page of every day of the enrichment and its index, from all records there are; no day fails for them."""
    from data_quality import report

    latest, unwritten = run_records.latest(enrichment), run_records.unwritten(enrichment)
    warning = or_warning(
        lambda: report.render(enrichment, latest, REPORTS / enrichment, unwritten), "the report is not written"
    )
    if warning:
        dg.get_dagster_logger().warning(warning)


def require_storing(enrichment: str) -> None:
    """See to it that verdicts and reports can be stored, before anything is called. Raises DeclarationError."""
    from data_quality import report, verdict_store

    try:
        verdict_store.require()
        report.require(REPORTS / enrichment)
    except verdict_store.VerdictsRefused as error:
        raise DeclarationError(f"{enrichment}: {error} Nothing was called.") from error
    except OSError as error:
        raise DeclarationError(f"{enrichment}: its report cannot be written: {error}. Nothing was called.") from error
