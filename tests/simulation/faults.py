"""Decides where faults strike, and counts them by kind."""

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping


class Faults:
    """The faults of one night.

    Each fault that strikes has a number, so that a failing night can be run again without it: that
    is how a night is shortened. They stop once the night is quiet.

    Attributes:
        struck: How often each kind struck.
        is_quiet: No further fault strikes.
    """

    def __init__(
        self,
        chances: Mapping[str, float],
        left_out: Collection[int],
        stream: Callable[[str], random.Random],
        say: Callable[..., None],
    ) -> None:
        """chances: Per kind, the probability that it strikes where it can. left_out: Numbers of
        faults that do not.
        """
        self._chances, self._left_out, self._say = chances, frozenset(left_out), say
        self._draws = {kind: stream(f"fault:{kind}") for kind in chances}
        self.struck: Counter[str] = Counter()
        self.numbers = 0
        self.is_quiet = False

    def strikes(self, kind: str, *, weight: float = 1.0) -> bool:
        """Whether this fault strikes here and now. weight: Of its probability, at this place."""
        if self.is_quiet or not self._chances.get(kind):
            return False
        if self._draws[kind].random() >= self._chances[kind] * weight:
            return False
        self.numbers += 1
        if self.numbers - 1 in self._left_out:
            return False
        self.struck[kind] += 1
        self._say("FAULT", self.numbers - 1, kind)
        return True

    def draw(self, kind: str) -> float:
        """A number between 0 and 1 that belongs to a fault of this kind."""
        return self._draws[kind].random()
