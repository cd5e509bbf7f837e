"""What can go wrong, by who can act on it. Every message is one sentence or two: the rule, the value, the cure."""

from __future__ import annotations


class TidegateError(Exception):
    """Anything that Tidegate says to a person; shown without a traceback."""


class DeclarationError(TidegateError):
    """The declaration, its input or its surroundings do not fit. Raised before work starts; nothing was called."""


class RunStopped(TidegateError):  # noqa: N818  # a stop is an outcome of a run, not a fault of the program
    """The run ended early because a service is down or refuses us. Nothing is published; it can be started again."""


class RowFailed(TidegateError):  # noqa: N818  # names the declared policy on_... = "fail"
    """A row ended in an outcome that the declaration says must fail the run."""


class PublishConflict(TidegateError):  # noqa: N818  # the other run is right too
    """The day cannot be published: another run published it meanwhile, or its checks hold it back."""
