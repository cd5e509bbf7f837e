"""Finds what Spark lacks on this machine before it is started: Java, its folder, a user's name."""

import contextlib
import os
import pwd
import re
import shutil
import sys
from pathlib import Path

from jobs.run.engines.engine import ENGINE, LOCAL
from jobs.wording import listed

JAVA = 17


def hidden_modules() -> str:
    """Return a message if the project hides a module of Python from a program; else empty."""
    here = Path.cwd()
    names = {path.stem for path in here.glob("*.py")}
    names |= {path.parent.name for path in here.glob("*/__init__.py")}
    if not (hidden := names & sys.stdlib_module_names):
        return ""
    return (
        f"a program could not import {listed(sorted(hidden), 3)} of Python: {here} has a file or "
        "package of that name. Rename it. Nothing was called."
    )


def why_spark_cannot_start() -> str:
    """Return a message if Java, Spark's folder or the user's name is missing; else empty."""
    home = os.environ.get("SPARK_HOME")
    if home and not Path(home, "bin", "spark-class").exists():
        return (
            f"Spark cannot start: SPARK_HOME is {home}, which has no bin/spark-class. Unset it, "
            "and the Spark of this environment is used. Nothing was called."
        )
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return (
            f"Spark cannot start for the user {os.geteuid()}, who has no name in /etc/passwd: add "
            f"it there, or start the container as a user who has. {ENGINE}={LOCAL} runs days "
            "without Spark. Nothing was called."
        )
    return java_missing()


def java_missing() -> str:
    """Return a message if Java is missing or too old to start Spark; else empty."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(Path(home, "bin", "java") if home else "java")
    if java is None:
        where = (
            f"JAVA_HOME is {home}, which has no bin/java"
            if home
            else "none is on PATH, and JAVA_HOME is not set"
        )
        return (
            f"Spark needs Java {JAVA} or newer: {where}. {ENGINE}={LOCAL} runs days without it. "
            "Nothing was called."
        )
    if (version := _java_version(Path(java))) < JAVA:
        where = (
            f"JAVA_HOME is {home}, which has Java {version}"
            if home
            else f"{java} is Java {version}"
        )
        return (
            f"Spark needs Java {JAVA} or newer: {where}. Set JAVA_HOME to a newer one. Nothing "
            "was called."
        )
    return ""


def _java_version(java: Path) -> int:
    """Return the version in Java's file `release`, without starting Java, or else JAVA."""
    with contextlib.suppress(OSError):
        release = (java.resolve().parents[1] / "release").read_text(encoding="utf-8")
        # 1.8.0 is Java 8
        if message := re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE):
            return int(message[1])
    return JAVA
