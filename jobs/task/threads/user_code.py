"""Names the lookup whose function a thread is in, by the frames on its stack."""

from pathlib import Path
from types import FrameType
from typing import NamedTuple

from jobs.clients.client import RunsUserCode


class UserCode(NamedTuple):
    """The place of a thread in a user's code."""

    lookup: str
    place: str  # file, line and function
    step: str  # open, close, or call


def user_code_at(frame: FrameType | None) -> UserCode | None:
    """Return the function of a lookup that this frame belongs to; None for Tidegate's frames."""
    below = frame
    while frame is not None:
        client = frame.f_locals.get("self") if frame.f_code.co_argcount else None
        if below is not frame and below is not None and isinstance(client, RunsUserCode):
            code = below.f_code
            place = f"{Path(code.co_filename).name}:{below.f_lineno} in {code.co_qualname}"
            step = (
                frame.f_locals.get("step", "call")
                if frame.f_code.co_name == "_lifecycle"
                else "call"
            )
            return UserCode(client.name, place, str(step))
        below, frame = frame, frame.f_back
    return None
