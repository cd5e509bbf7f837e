"""What Dagster is told of one day by one run of it: observations, materializations, links, all from plain facts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from data_quality import catalogue
from jobs import records
from jobs.counted import counted
from jobs.errors import LOG_SAYS_MORE, DeclarationError
from jobs.nightly import tried
from jobs.schema import DayRecord
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
        return records.spark_log(self.declared.name, self.day, self.run_id)

    @property
    def report(self) -> str:
        return metadata.report_url(self.declared.name, self.day)

    def links(self) -> dict[str, dg.MetadataValue]:
        return {
            "report": dg.MetadataValue.url(self.report),
            "spark_log": dg.MetadataValue.url(metadata.log_url(self.declared.name, self.day, self.run_id)),
            **metadata.runbook(self.declared),
        }

    def word(
        self, state: str, reason: str, next_step: str, more: Mapping[str, Any] | None = None
    ) -> dg.AssetObservation:
        """Dagster shows no metadata of a failed step and leaves the last success standing: this stands beside it."""
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
                **self.links(),
                **(more or {}),
            },
        )

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
        self, record: DayRecord, told: Mapping[str, Any]
    ) -> Iterator[dg.AssetObservation | dg.AssetMaterialization]:
        """What came of the day, in numbers too: red or green; what was read for it, how many rows are dead letters.

        told: its figures.
        """
        if record.state == "published":
            ran = f"{counted(len(record.verdicts), 'check')} ran on {counted(record.figures.rows_out, 'row')}."
            yield self.word("published", ran, "Nothing.", told)
        else:
            cause = f"{self.declared.name} held back: {', '.join(_red(record)) or record.reason}"
            yield self.word("held back", record.reason, mend(self.declared, record), {"cause": cause, **told})
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

    def published(self, record: DayRecord, told: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of the day's materialization. told: its figures."""
        return {
            "state": "published",
            "readers_see": metadata.readers_see(self.declared.facts, self.day),
            **metadata.published_metadata(self.declared, record),
            **told,
            **self.links(),
        }


def run_again(declared: Declared) -> str:
    """How to have the day, as the end of a sentence. The button of the asset alone makes no summaries."""
    with_summaries = f" by the job {declared.job_name}, with its summaries" if declared.enrichment.summaries else ""
    return f"materialize the day again{with_summaries}; the days published before stay as they are."


def mend(declared: Declared, record: DayRecord) -> str:
    """The next step of a day that is held back."""
    unfit = {f"{lookup.name}__errors_tolerated" for lookup in declared.facts.lookups}
    if declared.enrichment.ledger is not None and record.dead_letters and unfit.intersection(_red(record)):
        return (  # the nightly job takes a stored answer that does not fit as it is
            f"Open the report, mend the cause, then run the job {declared.name}_replay for the day: it asks again for "
            "the dead letters and nothing else; the days published before stay as they are."
        )
    judge_answers = {f"{lookup.name}__answers_in_range" for lookup in declared.facts.lookups}
    judge_answers |= {name for name, _ in catalogue.further(declared.facts)}
    if declared.enrichment.ledger is None or not judge_answers.intersection(_red(record)):
        return f"Open the report, mend the cause, then {run_again(declared)}"
    return (  # as it is, the day would have the same answers
        "Open the report, mend the cause; the ledger keeps the answers: where some are wrong have the job "
        f"refresh_answers, with do: true, ask anew for them; then {run_again(declared)}"
    )


def _red(record: DayRecord) -> list[str]:
    return [verdict.check for verdict in record.verdicts if verdict.holds_back]


def render_report(enrichment: str) -> None:
    """The page of every day of the enrichment and its index, from all records there are; no day fails for them."""
    from data_quality import report

    warning = tried(
        lambda: report.render(enrichment, records.latest(enrichment), REPORTS / enrichment), "the report is not written"
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
