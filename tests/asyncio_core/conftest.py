import asyncio
from contextlib import asynccontextmanager

import pytest
from hypothesis import Phase, settings

from asyncio_core import AsyncWaitOperator, OutputMode, StreamRecord
from asyncio_core.testing import ScriptedFunction

# of plant_faults.py, whose copy has no conftest.py but this one; that a test fails is enough there
settings.register_profile("plant-faults", deadline=None, phases=(Phase.explicit, Phase.generate))


class Run:
    """An open operator, what has left it and when, for one test."""

    def __init__(self, function, **options):
        options.setdefault("mode", OutputMode.ORDERED)
        options.setdefault("timeout", None)
        self.function = function
        self.emitted = []
        self.times = []
        self.operator = AsyncWaitOperator(function, self.take, **options)

    def take(self, element):
        self.emitted.append(element)
        self.times.append(asyncio.get_running_loop().time())

    @property
    def values(self):
        return [
            element.value if isinstance(element, StreamRecord) else element
            for element in self.emitted
        ]

    async def put(self, *elements):
        """Bare values stand for records without a timestamp."""
        for element in elements:
            is_element = hasattr(element, "timestamp")
            await self.operator.process_element(element if is_element else StreamRecord(element))


@pytest.fixture
def opened():
    """`async with opened(function or script, **options) as run`: always closed, and nothing may be
    left behind.
    """

    @asynccontextmanager
    async def open_operator(function, **options):
        if isinstance(function, dict):
            function = ScriptedFunction(function, timeouts=options.pop("timeouts", {}))
        if "survives_timeout" in options:
            function.survives_timeout = options.pop("survives_timeout")
        run = Run(function, **options)
        await run.operator.open()
        try:
            yield run
        finally:
            await run.operator.close()
            assert not list(run.operator._calls._pool), "close() leaves no task"

    return open_operator
