"""Makes a run's events about a day for Dagster: observations, materializations and links."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from data_quality.day_quality import REPORTS
from data_quality.next_step import next_step
from jobs.errors import LOG_SAYS_MORE
from jobs.schema.records import DayRecord
from jobs.tables.records import run_records
from jobs.wording import counted
from orchestration.common.report_server import log_url, report_url
from orchestration.common.states import NOT_STARTED, PUBLISHED, RUNNING, in_words
from orchestration.dagster.assets import metadata
from orchestration.dagster.declared import Declared

DATA_VERSION_TAG = "dagster/data_version"


@dataclass(frozen=True)
class DayEvents:
    declared: Declared
    day: str
    run_id: str

    @property
    def report(self) -> str:
        return report_url(self.declared.name, self.day)

    def links(self, *, report: bool = True, log: bool = False) -> dict[str, dg.MetadataValue]:
        """Return links to the day's pages.

        Args:
            report: Whether the day has a report by the time that somebody follows the link.
            log: Whether the run then has a log, even if it has none yet.
        """
        run = self.declared.name, self.day, self.run_id
        log = log or run_records.run_log(*run).exists()
        return {
            **({"report": dg.MetadataValue.url(self.report)} if report else {}),
            **({"spark_log": dg.MetadataValue.url(log_url(*run))} if log else {}),
            **metadata.runbook(self.declared),
        }

    def observation(
        self, state: str, reason: str, next_step: str, more: Mapping[str, Any] | None = None
    ) -> dg.AssetObservation:
        """Return an observation of the day's state, with the reason and the next step in sentences.

        Without it Dagster would show the last success: it shows no metadata of a failed step.
        """
        has_page = (
            state not in (RUNNING, PUBLISHED, NOT_STARTED)
            or Path(REPORTS, self.declared.name, self.day, "index.html").exists()
        )
        return dg.AssetObservation(
            asset_key=self.declared.key,
            partition=self.day,
            description=in_words(state, reason, next_step),
            metadata={  # sentences as text: a run's page hides Markdown behind a click
                "state": state,
                "reason": dg.MetadataValue.text(reason),
                "next_step": dg.MetadataValue.text(next_step),
                "readers_see": metadata.readers_see(self.declared.facts, self.day),
                **self.links(report=has_page or state == PUBLISHED, log=state == RUNNING),
                "cause": self._cause(state, reason),
                **(more or {}),
            },
        )

    def _cause(self, state: str, reason: str) -> str:
        """Return equal text for days that fail for the same reason: each is alerted once."""
        services = [lookup.service_name for lookup in self.declared.enrichment.lookups]
        # if the service was down before the first call
        begins = reason.removeprefix(f"{self.declared.name}: service ")
        for service in services:
            if state.startswith("stopped") and begins.startswith((f"{service} ", f"{service}:")):
                return f"{service} {state}"  # for every enrichment that calls it
        cause = reason.partition(LOG_SAYS_MORE)[0]  # the log belongs to a single run
        return f"{self.declared.name} {state}: {cause.replace(self.day, '<day>')}"

    def report_record(
        self, record: DayRecord, reported: Mapping[str, Any]
    ) -> Iterator[dg.AssetObservation | dg.AssetMaterialization]:
        """Yield the day's result, the input that was read, and the dead letters.

        Args:
            record: The record of the run.
            reported: The figures of the day, for the result of a day that is held back.
        """
        if record.state == PUBLISHED:
            rows = counted(record.figures.rows_out, "row")
            ran = f"Checks of {rows}: {metadata.checks_in_words(record)}."
            # the materialization has the figures
            yield self.observation("published", ran, "Nothing.")
        else:
            red = ", ".join(verdict.check for verdict in record.red)
            cause = f"{self.declared.name} held back: {red or record.reason}"
            yield self.observation(
                "held back", record.reason, next_step(record), {"cause": cause, **reported}
            )
        yield dg.AssetObservation(
            asset_key=self.declared.raw_key,
            partition=self.day,
            metadata={
                "dagster/row_count": record.figures.rows_in,
                "files": len(record.facts.input_files),
                **(
                    {}
                    if record.facts.input_version is None
                    else {"version": record.facts.input_version}
                ),
            },
        )
        if (
            record.state == PUBLISHED
            and self.declared.has_dead_letters
            # the first dead letter makes the table
            and (record.dead_letters or metadata.is_table(self.declared.dead_letters_table))
        ):
            yield dg.AssetMaterialization(
                asset_key=self.declared.dead_letters_key,
                partition=self.day,
                description=f"{counted(record.dead_letters, 'dead letter')} of "
                f"{counted(record.figures.rows_out, 'row')}.",
                metadata={
                    "dagster/row_count": record.dead_letters,
                    "path": self.declared.dead_letters_table,
                },
            )

    def published(self, record: DayRecord, reported: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata of the day's materialization, with `reported`, its figures."""
        return {
            "state": "published",
            "readers_see": metadata.readers_see(self.declared.facts, self.day),
            **metadata.published_metadata(self.declared, record),
            **reported,
            **self.links(),
        }


def data_version(record: DayRecord) -> dg.DataVersion:
    """Return a published day's data version; it changes with declaration and publication."""
    return dg.DataVersion(f"{record.facts.declared.fingerprint}-{record.published_version}")
