"""A lookup for tests of inputs: its answer is the length of the key, without a service."""

from tidegate import AsyncFunctionLookup


class LengthOf:
    async def async_invoke(self, keys):
        return [{"score": float(len(keys["k"])), "width": len(keys["k"])}]


MOOD = AsyncFunctionLookup(
    name="mood",
    keys={"k": "k"},
    returns="score DOUBLE",
    timeout=1.0,
    max_concurrency=2,
    function=LengthOf,
)
