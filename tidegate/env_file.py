"""Reads the file `.env` of the current folder, which Dagster reads too."""

import os
import re
from pathlib import Path

from jobs.errors import DeclarationError

LINE = re.compile(
    r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*="
    r"(?:\s+#.*|\s*(?:(?:'([^']*)'|\"([^\"\\]*)\")\s*(?:#.*)?|([^'\"\s].*?|)(?:\s+#.*)?\s*))"
)


def read_env_file(folder: Path) -> None:
    """Set the variables of the folder's `.env`, a NAME=VALUE per line, that are not set yet.

    Comments, quotes and `export` are as in a shell; lines of another form are ignored.

    Raises:
        DeclarationError: The file is not UTF-8, or its first variable follows a byte order mark.
    """
    try:
        lines = (folder / ".env").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    except UnicodeDecodeError as error:
        raise DeclarationError(
            f".env is not UTF-8, so no variable is read: {error}. Save it as UTF-8."
        ) from error
    if lines and lines[0].startswith("\ufeff") and LINE.fullmatch(lines[0][1:]):
        raise DeclarationError(
            ".env begins with a byte order mark, so that Dagster does not read its first variable. "
            "Save it as UTF-8 without the mark."
        )
    values = {}
    for line in lines:
        if match := LINE.fullmatch(line):
            name, *forms = match.groups()
            values[name] = next(filter(None, forms), "")
    for name, value in values.items():
        os.environ.setdefault(name, value)
