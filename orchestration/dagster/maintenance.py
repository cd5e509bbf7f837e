"""Jobs to start by hand that are not about a single day: plan, refresh answers, compact the
ledgers, vacuum the tables.
"""

import json
from collections.abc import Sequence

import dagster as dg

from jobs.wording import counted
from orchestration.dagster.assets.enriched import POOL
from orchestration.dagster.declared import Declared, declared_as, shared_name
from orchestration.dagster.errors import as_failure, noting

REFRESH = "refresh_answers"  # name of the job without its prefix
DAYS_TO_RUN = "tidegate/days_to_run"  # tag of a run of refresh_answers: JSON, enrichment -> days


class PlannedDays(dg.Config):
    """Days of an enrichment from first to last, both included; only `first` without `last`."""

    enrichment: str
    first: str
    last: str = ""


class Answers(dg.Config):
    """Stored answers of a lookup. where: SQL, such as "answer.lat = 0". do: False reports what
    would be done, and does nothing.

    answered_from, answered_to: first and last day of the answers, UTC; empty for all.
    """

    lookup: str
    where: str
    answered_from: str = ""
    answered_to: str = ""
    do: bool = False


class Age(dg.Config):
    """The age up to which files and old versions of the tables stay."""

    keep_days: int = 7


def maintenance_jobs(all_declared: Sequence[Declared]) -> list[dg.JobDefinition]:
    return [_plan(all_declared), _refresh(all_declared), _maintenance(all_declared)]


def _plan(all_declared: Sequence[Declared]) -> dg.JobDefinition:
    @dg.op(name=shared_name(all_declared, "count_keys"), pool=POOL, out=dg.Out(dg.Nothing))
    def count_keys(context: dg.OpExecutionContext, config: PlannedDays) -> None:
        from jobs.commands.day_range import day_range
        from jobs.commands.planning.plan import plan
        from jobs.run.estimating.text import estimate_text

        enrichment = declared_as(all_declared, config.enrichment).enrichment
        with as_failure():
            days = day_range(
                enrichment, config.first, config.last or config.first, names=("first", "last")
            )
            estimate = estimate_text(plan(enrichment, days))
        context.log.info(estimate)
        context.add_output_metadata({"estimate": dg.MetadataValue.md(f"```\n{estimate}\n```")})

    @dg.job(
        name=shared_name(all_declared, "plan"),
        description=(
            "What days of an enrichment would ask, why a key is asked again, what it "
            "costs. Calls nothing."
        ),
    )
    def plan_days() -> None:
        count_keys()

    return plan_days


def _refresh(all_declared: Sequence[Declared]) -> dg.JobDefinition:
    @dg.op(name=shared_name(all_declared, "mark_answers"), out=dg.Out(dg.Nothing))
    def mark_answers(context: dg.OpExecutionContext, config: Answers) -> None:
        with as_failure():
            _mark_answers(context, config, all_declared)

    @dg.job(
        name=shared_name(all_declared, REFRESH),
        description="Asks again for stored answers that meet a condition: expires them, then runs "
        "the days that use them. With do: false it lists these days and changes nothing.",
    )
    def refresh_answers() -> None:
        mark_answers()

    return refresh_answers


def _mark_answers(
    context: dg.OpExecutionContext, config: Answers, all_declared: Sequence[Declared]
) -> None:
    from jobs.commands import ledgers
    from jobs.commands.replaying import refresh

    say = context.log.info
    run: dict[str, list[str]] = {}
    for kept in ledgers.named(
        [(declared.reference, declared.enrichment) for declared in all_declared], config.lookup
    ):
        matched = refresh.find(
            kept, config.where, first=config.answered_from or None, last=config.answered_to or None
        )
        say(f"{counted(len(matched.keys), 'stored answer')} of {config.lookup} with {config.where}")
        for _, enrichment, days in matched.days:
            name = enrichment.name
            say(f"{name}: {counted(len(days), 'day uses', 'days use')} them: {', '.join(days)}")
            run[name] = sorted({*run.get(name, []), *days})
        if config.do:
            refresh.expire(kept, matched)
    for name, uses in run.items():
        partitions = declared_as(all_declared, name).days
        if unknown := [day for day in uses if not partitions.has_partition_key(day)]:
            context.log.warning(
                "%s: Dagster has no partition %s, and starts none: `tidegate run %s --day DAY` "
                "runs it.", name, ", ".join(unknown), name,
            )  # fmt: skip
    if config.do:
        context.instance.add_run_tags(context.run_id, {DAYS_TO_RUN: json.dumps(run)})
    else:
        say("Nothing was changed: with do: true they are asked again, and these days run again.")
    context.add_output_metadata({"days": dg.MetadataValue.json(run), "done": config.do})


def _maintenance(all_declared: Sequence[Declared]) -> dg.JobDefinition:
    @dg.op(name=shared_name(all_declared, "compact_ledgers"), out=dg.Out(dg.Nothing))
    def compact_ledgers(context: dg.OpExecutionContext) -> None:
        from jobs.commands import compact, ledgers

        say, failed = context.log.info, list[str]()
        for kept in ledgers.declared_ledgers(
            (declared.reference, declared.enrichment) for declared in all_declared
        ):
            name = kept.lookup.name
            with noting(failed, name):
                if (done := compact.compact(kept)) is not None:
                    say(f"{name}: {done.words}")
        _fail_with(failed)

    @dg.op(name=shared_name(all_declared, "vacuum_tables"), out=dg.Out(dg.Nothing))
    def vacuum_tables(context: dg.OpExecutionContext, config: Age) -> None:
        from jobs.commands.vacuum import parse_age, vacuum

        with as_failure():
            older_than = parse_age(config.keep_days)
        say, failed = context.log.info, list[str]()
        for declared in all_declared:
            with noting(failed, declared.name):
                for vacuumed in vacuum(declared.enrichment, older_than=older_than):
                    say(f"{vacuumed.table}: {vacuumed.removed.words} removed")
        _fail_with(failed)

    @dg.job(
        name=shared_name(all_declared, "maintenance"),
        description="The many small parts of every ledger become a few sorted files. Old versions "
        "of every table, and runs that were never published, are deleted once they are older than "
        "keep_days. Safe beside running jobs.",
    )
    def maintain() -> None:
        compact_ledgers()
        vacuum_tables()

    return maintain


def _fail_with(failed: Sequence[str]) -> None:
    if failed:
        raise dg.Failure(" ".join(failed), allow_retries=False)
