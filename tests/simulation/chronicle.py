"""The random numbers of a night, and the record of what they made happen: the same ones for the same
seed.
"""

import random
import zlib

from tests.simulation.processes import current

DIGEST_BITS = 0xFFFFFFFFFFFF


class Chronicle:
    """Draws, and records.

    Attributes:
        now: Virtual seconds since the night began.
        digest: Of everything that happened so far, in order.
        failures: What no thread may do: deadlocks, livelocks, errors of threads that nobody
            handles.
        trace: The lines of what happened; None unless they are wanted.
    """

    def __init__(self, seed: str, *, trace: bool, folder: str) -> None:
        """folder: The real folder of the night, whose name is not part of what happens."""
        self._seed, self._folder = seed, folder
        self.now = 0.0
        self.digest = 0
        self.failures: list[str] = []
        self.trace: list[str] | None = [] if trace else None
        self._names = self.stream("names")
        self._numbers = 0

    def stream(self, name: str) -> random.Random:
        """A stream of random numbers that is independent of all other names' streams."""
        return random.Random(f"{self._seed}:{name}")

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def token_bits(self, bits: int) -> int:
        """The next random number of the product: tokens, run ids, jitter."""
        return self._names.getrandbits(bits)

    @property
    def jitter(self) -> random.Random:
        return self._names

    def say(self, *words: object) -> None:
        """Record what happened, in the digest and in the trace."""
        line = " ".join(map(str, words)).replace(self._folder, "")
        self.digest = (
            zlib.crc32(line.encode(), self.digest & 0xFFFFFFFF) ^ (self.digest << 7) & DIGEST_BITS
        )
        if self.trace is not None:
            me = current()
            self.trace.append(f"{self.now:10.4f} {me.process.name if me else '-':16s} {line}")

    def fail(self, message: str) -> None:
        self.failures.append(f"{self.now:.4f}: {message}")
        self.say("FAILURE", message.split("\n", 1)[0])
