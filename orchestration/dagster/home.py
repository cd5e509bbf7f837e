"""The folder of Dagster's runs and events, with settings for a single machine or for a team."""

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
ONE_MACHINE, TEAM = HERE / "dagster.yaml", HERE / "dagster.team.yaml"
UI_URL = "TIDEGATE_UI_URL"  # Dagster's page, to which alerts and reports link
# host of the PostgreSQL for runs and events; if set, the team's settings apply
TEAM_HOST = "TIDEGATE_PG_HOST"


def dagster_home(folder: Path = Path("data/dagster")) -> Path:
    """Make the folder for DAGSTER_HOME, and link our settings there as dagster.yaml, unless the
    user has put a file there.
    """
    settings = TEAM if os.environ.get(TEAM_HOST) else ONE_MACHINE
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "dagster.yaml"
    if link.is_symlink() and link.resolve() != settings:
        link.unlink()
    if not link.exists():
        link.symlink_to(settings)
    return folder.resolve()
