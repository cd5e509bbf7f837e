"""The functions that drawn declarations name: a coroutine over HTTP, and an AsyncFunction."""

import json
from urllib.parse import quote

from tests.jobs.run.drawn.natures import canonical, reaction

VENDOR = []  # of the night that is played


async def ask_vendor(name, keys, row, http):
    """What a coroutine of a user does: it asks, reports what is billed, and reads the answer."""
    look = VENDOR[-1].looks[name]
    parts = "/".join(quote(canonical(getattr(row, key)), safe="") for key in keys)
    answer = await http.get(f"/{name}/{parts}")
    if answer is None:
        return None
    if look.bills_use:
        http.bill(tokens=answer["usage"]["tokens"])
    return {look.column(member): value for member, value in answer.items() if member != "usage"}


class Answers:
    """An AsyncFunction as in Flink."""

    name = ""

    async def async_invoke(self, keys):
        vendor = VENDOR[-1]
        look = vendor.looks[self.name]
        key = json.dumps([canonical(value) for value in keys.values()])
        what = reaction(look.mood(key), vendor.seen[self.name, key])
        vendor.seen[self.name, key] += 1
        vendor.requests[self.name] += 1
        if what == "404":
            return []
        if what == "500":
            raise ConnectionError("it broke")
        truths = look.truths(key, vendor.epoch)
        answer = {look.column(member): truth.value for member, truth in truths.items()}
        if what == "misfit":
            answer[look.column("n")] = "many"
        if what == "lacks":
            del answer[look.column("n")]
        return [answer, answer] if what == "two" else [answer]
