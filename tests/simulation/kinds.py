"""The kinds of nights: of calls, of publishing, and of vendor jobs. Each loads only the part of the
product that it drives.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.simulation.outcome import Outcome


class Night(Protocol):
    seed: int

    def as_json(self) -> str: ...

    def smaller(self) -> "Iterator[Night]":
        """Nights with one thing less, the largest things first."""


@dataclass(frozen=True)
class Kind:
    """How nights of a kind are drawn, read, and played. kept: a file with nights. counts: what an
    outcome counts.
    """

    draw: Callable[[int], Night]
    of_json: Callable[[str], Night]
    install: Callable[[], object]
    play: Callable[..., Outcome]
    kept: Path
    counts: str


def calls() -> Kind:
    from tests.simulation import drawn_nights, nights, play, product

    kept = Path(__file__).with_name("seeds.txt")
    return Kind(
        drawn_nights.draw_night, nights.Night.of_json, product.install, play.play, kept, "calls"
    )


def publishing() -> Kind:
    from tests.simulation.publishing import night, product, stage

    return Kind(
        night.draw_night, night.PublishingNight.of_json, product.install, stage.play,
        Path(stage.__file__).with_name("seeds.txt"), "publications",
    )  # fmt: skip


def jobs() -> Kind:
    from tests.simulation.vendor_jobs import night, product, stage

    return Kind(
        night.draw_night, night.JobsNight.of_json, product.install, stage.play,
        Path(stage.__file__).with_name("seeds.txt"), "jobs",
    )  # fmt: skip


KINDS = {"calls": calls, "publishing": publishing, "jobs": jobs}
