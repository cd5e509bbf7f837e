"""Airflow: a file for its folder of plugins. Like this one it imports only Airflow and the standard library."""

import shutil
from pathlib import Path


def copy_plugin(folder: Path) -> Path:
    """Copy the file that makes DAGs of a manifest into a folder. Returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(Path(__file__).with_name("tidegate_airflow.py"), folder))
