"""Copies a file for Airflow's folder of plugins. Like this module, the file imports only Airflow
and the standard library.
"""

import shutil
from pathlib import Path


def copy_plugin(folder: Path) -> Path:
    """Copy the file that makes DAGs from a manifest into a folder. Returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(Path(__file__).with_name("tidegate_airflow.py"), folder))
