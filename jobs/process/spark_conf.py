"""Reads Spark settings that a user adds: `--conf key=value`, or TIDEGATE_SPARK_CONF."""

import os
import shlex
from collections.abc import Iterable, Mapping

from jobs.errors import DeclarationError
from jobs.run.engines import local_master
from jobs.run.engines.spark_session import OF_APPLICATION, OF_SESSION, OF_USER

SPARK_CONF = "TIDEGATE_SPARK_CONF"
SET_ELSEWHERE = {
    "spark.master": "TIDEGATE_SPARK_MASTER sets it",
    "spark.app.name": "each run has its own",
    "spark.driver.extraJavaOptions": "TIDEGATE_SPARK_JAVA_OPTIONS adds to it",
    "spark.speculation": "a second copy of a task would repeat its calls",
}


def settings_from_environment() -> dict[str, str]:
    """Return the settings in TIDEGATE_SPARK_CONF: separated by spaces, quoted as in a shell.

    Raises:
        DeclarationError: A part is not a setting.
    """
    try:
        words = shlex.split(os.environ.get(SPARK_CONF, ""))
    except ValueError as error:
        raise DeclarationError(
            f"{SPARK_CONF}: {str(error).lower()}; quote values as in a shell."
        ) from error
    return read_settings(words, SPARK_CONF)


def read_settings(words: Iterable[str], source: str) -> dict[str, str]:
    """Return settings by their keys; of equal keys the last.

    Args:
        words: Each `key=value`.
        source: Where they come from, for errors.

    Raises:
        DeclarationError: A word is not a setting.
    """
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.startswith("spark.") or key != "".join(key.split()):
            raise DeclarationError(
                f"{source}: {word!r} is not a setting of Spark; write spark.key=value."
            )
        settings[key] = value
    return settings


def refuse_own_settings(settings: Mapping[str, str], master: str) -> None:
    """Refuse settings that Tidegate makes itself, because a run would not use the user's value.

    Raises:
        DeclarationError: Names each of them, and why.
    """
    fixed = {**OF_SESSION, **OF_APPLICATION, **local_master.start_settings(master)}.keys() - set(
        OF_USER
    )
    reasons = dict.fromkeys(fixed, "Tidegate sets it itself") | SET_ELSEWHERE
    DeclarationError.raise_for(
        f"{key}={value} cannot be set: {reasons[key]}; leave it out."
        for key, value in settings.items()
        if key in reasons
    )
