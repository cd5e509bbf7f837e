"""A test kit for functions and operators: virtual time, and a scripted function.

Example:
    async def an_hour():
        function = ScriptedFunction({1: Reply([10], after=3600.0), 2: Hang()}, timeouts={2: [-2]})
        found = []
        operator = AsyncWaitOperator(
            function, found.append, mode=OutputMode.ORDERED, timeout=7200.0
        )
        await operator.open()
        try:
            await operator.process_element(StreamRecord(1))
            await operator.process_element(StreamRecord(2))
            await operator.end_input()
        finally:
            await operator.close()
        return [record.value for record in found]

    assert run_virtual(an_hour) == [10, -2]  # two hours, at once
"""

from asyncio_core.testing.scripted_function import Call, Fail, Hang, Reply, ScriptedFunction, Step
from asyncio_core.testing.virtual_time import StuckError, run_virtual

__all__ = ["Call", "Fail", "Hang", "Reply", "ScriptedFunction", "Step", "StuckError", "run_virtual"]
