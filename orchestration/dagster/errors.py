"""Errors with a sentence for people: of one table among others, or of a whole run."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from jobs.errors import TidegateError


@contextmanager
def noting(failed: list[str], name: str) -> Iterator[None]:
    """Note the failure of a table or a ledger, so that it does not keep the others waiting."""
    try:
        yield
    except (OSError, TidegateError) as error:
        failed.append(f"{name}: {error}")


@contextmanager
def as_failure() -> Iterator[None]:
    """End the run with the sentence of an error; Dagster would show it below its own stack."""
    try:
        yield
    except TidegateError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
