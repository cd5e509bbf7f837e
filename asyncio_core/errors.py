"""The core's only error class: a record without a result."""

import reprlib

from asyncio_core.elements import StreamRecord

_shorten = reprlib.Repr()
_shorten.maxstring = _shorten.maxother = 200


class AsyncInvokeError(Exception):
    """A record got no result, which fails the operator. The user's exception is the cause.

    Attributes:
        element: The input record.
        attempts: Calls made for it.
        elapsed: Seconds since the start of its first call, without the time that the gate was
            closed.
    """

    def __init__(self, element: StreamRecord, attempts: int, elapsed: float) -> None:
        super().__init__(element, attempts, elapsed)
        self.element = element
        self.attempts = attempts
        self.elapsed = elapsed

    def __str__(self) -> str:
        value = _shorten.repr(self.element.value)
        cause = self.__cause__
        reason = "" if cause is None else f": {type(cause).__name__}: {cause}"
        return (
            f"no result for the record {value} (timestamp {self.element.timestamp}),"
            f" given up in attempt {self.attempts} after {self.elapsed:.3f} s{reason}"
        )
