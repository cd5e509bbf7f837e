"""The config of a run of days: its mode, which the launch form lists."""

from typing import Any

import dagster as dg
from pydantic import Field

from orchestration.common.modes import Mode
from orchestration.dagster.declared import Declared

MODE = "tidegate/mode"  # tag of a run of another mode than nightly, by which runs are found


class DayConfig(dg.Config):
    """The settings of a run: in which mode it runs its days."""

    mode: Mode = Field(
        default=Mode.nightly,
        description="\n".join(f"- {mode.name}: {mode.value.description}" for mode in Mode),
    )


def config_of_mode(declared: Declared, mode: Mode) -> dict[str, Any]:
    """Return the config of a run in this mode, as the launch form takes it."""
    return {"ops": {declared.key.to_python_identifier(): {"config": {"mode": mode.name}}}}
