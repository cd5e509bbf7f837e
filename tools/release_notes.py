"""What changed in a version, out of CHANGELOG.md: python -m tools.release_notes 0.2.0"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def notes(version: str, changelog: str, declared: str) -> str:
    """Return the section of a version.

    Raises:
        ValueError: The version differs from pyproject.toml's, or the changelog says nothing of it.
    """
    if version != declared:
        raise ValueError(
            f"the tag says {version}, and pyproject.toml {declared}. Set one to the other."
        )
    section = re.search(
        (
            rf"^## \[?{re.escape(version)}\]?[^\n]*\n(.*?)(?=^## "
            r"|\Z)"
        ),
        changelog,
        re.MULTILINE | re.DOTALL,
    )
    if section is None or not section[1].strip():
        raise ValueError(
            f"CHANGELOG.md says nothing of {version}. Give 'Unreleased' its number and the day."
        )
    return section[1].strip()


def main(version: str) -> int:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    try:
        print(notes(version, (ROOT / "CHANGELOG.md").read_text(), declared))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
