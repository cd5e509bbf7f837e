"""Where Dagster keeps its runs and events: one folder, with the settings of the project's dagster.yaml."""

from pathlib import Path

SETTINGS = Path(__file__).resolve().parent.parent / "dagster.yaml"


def dagster_home(folder: Path = Path("data/dagster")) -> Path:
    """The folder as DAGSTER_HOME wants it: there, absolute, its dagster.yaml a link to the project's."""
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "dagster.yaml"
    if not link.is_symlink() or link.resolve() != SETTINGS:
        link.unlink(missing_ok=True)
        link.symlink_to(SETTINGS)
    return folder.resolve()
