"""A sensor that reports runs that died, days published without Dagster, and missed deadlines."""

import dataclasses
import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import dagster as dg

from jobs.declare.values.calendar import name_unit
from jobs.wording import counted
from orchestration.dagster.declared import Declared, shared_name
from orchestration.dagster.errors import noting
from orchestration.dagster.sensors.dead_runs import end_dead_runs
from orchestration.dagster.sensors.external_publications import NOTHING_YET, tell_publications
from orchestration.dagster.sensors.freshness import changed
from orchestration.dagster.sensors.silent_ends import tell_silent_ends
from orchestration.dagster.sensors.starts_days import Clock, utc_now

LOOK_EVERY = 30  # s
FIRST_LOOK = dt.timedelta(days=1)  # back, for runs that ended silently
OVERLAP = dt.timedelta(minutes=2)  # between two looks; what was reported is not reported again


@dataclass
class ReportsCursor:
    """What the sensor has reported so far.

    Attributes:
        until: The time up to which it searched for runs that ended silently, ISO 8601.
        versions: The last reported version of each table.
        deadlines: The last sentence on the deadline of each enrichment.
    """

    until: str = ""
    versions: dict[str, int] = field(default_factory=dict)
    deadlines: dict[str, str] = field(default_factory=dict)


def reports_days(all_declared: Sequence[Declared], now: Clock = utc_now) -> dg.SensorDefinition:
    """Return the sensor for all enrichments; an unreadable table does not stop the others."""

    @dg.sensor(
        name=shared_name(all_declared, "reports_days"),
        minimum_interval_seconds=LOOK_EVERY,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Ends runs whose process is gone, as after the machine went down, so that "
        "their slots are free and they are started once more; a day whose run ended silently is "
        "reported as failed, or as tried again. Days published without Dagster, for example by "
        "`tidegate run`, are materialized with their figures. The check published_in_time is "
        "answered when a deadline passes, and when the day is published after all.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        instance, began = context.instance, utc_now()
        cursor = ReportsCursor(**json.loads(context.cursor or "{}"))
        since = dt.datetime.fromisoformat(cursor.until) if cursor.until else began - FIRST_LOOK
        ended = end_dead_runs(instance)
        unread: list[str] = []
        silent = tell_silent_ends(instance, all_declared, since - OVERLAP, unread)
        if not unread:
            cursor.until = began.isoformat()
        due = list(changed(all_declared, cursor.deadlines, now(), unread))
        news = [f"Ended: {', '.join(ended)}."] if ended else []
        news += [f"Ended silently: {', '.join(silent)}."] if silent else []
        for declared in all_declared:
            version = cursor.versions.get(declared.name, NOTHING_YET)
            with noting(unread, declared.name):
                days, cursor.versions[declared.name] = tell_publications(
                    instance, declared, version
                )
                if days:
                    count = counted(len(days), name_unit(days))
                    news.append(f"{declared.name}: {count} published elsewhere.")
        reason = " ".join([*news, *dict.fromkeys(unread)]) or "Nothing new."
        return dg.SensorResult(
            skip_reason=reason, cursor=json.dumps(dataclasses.asdict(cursor)), asset_events=due
        )

    return sensor
