"""The end of a day's run as plain data, sent to the process that waits for it."""

import json
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True)
class Outcome:
    """The end of a run. reason and next_step are empty for a day that was published."""

    day: str
    run_id: str
    success: bool
    reason: str = ""
    next_step: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))
