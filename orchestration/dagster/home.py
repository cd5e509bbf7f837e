"""Where Dagster keeps its runs and events: one folder, with our settings for one machine or for a team."""

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
ONE_MACHINE, TEAM = HERE / "dagster.yaml", HERE / "dagster.team.yaml"
UI_URL = "TIDEGATE_UI_URL"  # Dagster's page as alerts and reports link it
TEAM_HOST = "TIDEGATE_PG_HOST"  # of the PostgreSQL for runs and events; where it is set, the team's settings hold


def dagster_home(folder: Path = Path("data/dagster")) -> Path:
    """The folder as DAGSTER_HOME wants it: there, absolute, its dagster.yaml a link to ours."""
    settings = TEAM if os.environ.get(TEAM_HOST) else ONE_MACHINE
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "dagster.yaml"
    if not link.is_symlink() or link.resolve() != settings:
        link.unlink(missing_ok=True)
        link.symlink_to(settings)
    return folder.resolve()
