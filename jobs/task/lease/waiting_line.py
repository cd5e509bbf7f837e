"""The calls of a task that wait for their lease."""

import asyncio


class WaitingLine:
    """Calls that wait for their turn.

    Attributes:
        turns: Of these calls, in the order in which they came.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.turns: dict[asyncio.Future[None], None] = {}

    def join(self) -> asyncio.Future[None]:
        """Return a future that is done when the call that joins may look again."""
        turn = self._loop.create_future()
        self.turns[turn] = None
        return turn

    def leave(self, turn: asyncio.Future[None]) -> None:
        self.turns.pop(turn, None)

    def wake(self, many: int) -> None:
        """Wake the first `many` calls; each checks again whether it may start."""
        while many > 0 and self.turns:
            turn = next(iter(self.turns))
            del self.turns[turn]
            if not turn.done():  # else it was cancelled
                turn.set_result(None)
                many -= 1
