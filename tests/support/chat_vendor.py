"""A stand-in for the vendor of a language model, in the form of chat completions. It keeps what it
said to each review and what it billed, so that a test can hold rows and costs to it.
"""

import asyncio
import json
import random
import time
from collections import Counter
from decimal import Decimal

from aiohttp import web

from tests.support.loop_thread import LoopThread, end_service

ASKED_AGAIN = "\n\nYour last answer cannot be used: "
USUAL = {"fits": 90, "misfit": 7, "cut": 2, "refused": 1}
FITS = ("plain", "fenced", "with words")
MISFITS = ("seven", "text for a number", "no topic", "two objects", "open fence", "twice", "nan")
INPUT, OUTPUT = Decimal("0.15"), Decimal("0.60")  # USD per million tokens
UNANSWERED = {"error": 500, "throttled": 429}
DECLARATION = """
from tidegate import Budget, Enrichment, HttpLookup, Input, Ledger, Output, Price, Retry, Service, Tolerance

label = HttpLookup(
    name="label", keys={{"review": "review"}}, timeout={timeout}, request="POST /v1/chat/completions",
    returns="topic STRING, score INT", retry=Retry(retries=2, initial_delay=0.02, jitter=0.0),
    body={{"model": "small-1", "messages": [{{"role": "user", "content": "{{review}}{{repair}}"}}]}},
    answer="$.choices[0].message.content", repair=1,
    schema={{"required": ["topic", "score"], "properties": {{"score": {{"type": "integer", "maximum": 5}}}}}},
    cut_when="$.choices[0].finish_reason == 'length'", error_when=["length($.choices[0].message.refusal) > 0"],
    bill={{"input_tokens": "$.usage.prompt_tokens", "output_tokens": "$.usage.completion_tokens"}},
    service=Service(
        name="model", url="{url}", max_concurrency=8, {limits}
        prices=[Price("0.15 USD", per="1000000 input_tokens", at_most=900),
                Price("0.60 USD", per="1000000 output_tokens", at_most=100)],
    ),
)
reviews = Enrichment(
    name="reviews", input=Input(path="raw", row_id=["id"]), lookups=[label], output=Output(path="out"),
    ledger=Ledger("ledger"), tolerance=Tolerance(error=1.0, timeout=1.0),
)
"""


class ChatVendor:
    """Answers requests by chance, in these kinds, and bills tokens.

    Attributes:
        said: Review -> (kind, the right answer) of each request for it, in order.
        asked: The requests' bodies.
        billed: (time, review, USD) of each request that is billed, when its answer leaves.
        cut_off: Requests that were answered and billed, and whose answer was not sent.
    """

    def __init__(self, weights=USUAL, *, seed=11, latency=0.0):
        self.weights, self.latency = weights, latency
        self.draw, self.cut_off = random.Random(seed), 0
        self.said, self.asked, self.billed = {}, [], []
        self.tokens = Counter()
        self.loop = LoopThread().start()
        self.url = self.loop.run(self._start())

    async def _start(self):
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1_000)
        await site.start()
        return f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"

    @property
    def invoice(self):
        return sum((cost for _, _, cost in self.billed), Decimal(0))

    @property
    def repairs(self):
        """The requests that ask again for an answer that did not fit."""
        return [
            request for request in self.asked if ASKED_AGAIN in request["messages"][-1]["content"]
        ]

    def right(self, review, *, repairs=0):
        """Return what became of a review by the vendor's own list: a status and an answer."""
        answered = [reply for reply in self.said[review] if reply[0] not in UNANSWERED]
        for kind, answer in answered[: repairs + 1]:
            if kind == "fits":
                return "ok", answer
            if kind != "misfit":
                break
        return "error", {"topic": None, "score": None}

    async def _answer(self, request):
        asked = await request.json()
        self.asked.append(asked)
        review = asked["messages"][-1]["content"].partition(ASKED_AGAIN)[0]
        kind = self.draw.choices([*self.weights], [*self.weights.values()])[0]
        answer = {"topic": self.draw.choice(["price", "quality"]), "score": self.draw.randint(1, 5)}
        self.said.setdefault(review, []).append((kind, answer))
        text = self._text(kind, json.dumps(answer))
        usage = {
            "prompt_tokens": self.draw.randint(20, 900),
            "completion_tokens": len(text) // 4,
        }
        if self.latency:
            await asyncio.sleep(self.latency)
        if kind in UNANSWERED:
            headers = {"Retry-After": "0.05"}
            return web.json_response({"error": kind}, status=UNANSWERED[kind], headers=headers)
        self.tokens.update(usage)
        cost = INPUT * usage["prompt_tokens"] + OUTPUT * usage["completion_tokens"]
        self.billed.append((time.monotonic(), review, cost / 1_000_000))
        if kind == "cut off":
            self.cut_off += 1
            request.transport.close()
        if kind == "rejected":
            return web.json_response({"error": kind, "usage": usage}, status=400)
        message = {"role": "assistant", "content": text}
        if len(text) % 2:  # others of the same form leave it out
            message["refusal"] = None
        if kind == "refused":
            message |= {"content": None, "refusal": "I cannot help with that."}
        reason = "length" if kind == "cut" else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return web.json_response({"choices": [choice], "usage": usage})

    def _text(self, kind, right):
        if kind == "cut":
            return right[: len(right) // 2]
        fenced = f"```json\n{right}\n```"
        if kind != "misfit":
            words = f"Here it is:\n{fenced}\nDone."
            return {"plain": right, "fenced": fenced, "with words": words}[self.draw.choice(FITS)]
        return {
            "seven": right[:-1].rpartition(":")[0] + ": 7}",
            "text for a number": '{"topic": "price", "score": "3"}',
            "no topic": '{"score": 3}',
            "two objects": f"{right}\n{right}",
            "open fence": f"```json\n{right}",
            "twice": '{"topic": "price", "score": 3, "score": 4}',
            "nan": '{"topic": "price", "score": NaN}',
        }[self.draw.choice(MISFITS)]

    def close(self):
        self.loop.run(end_service(self._runner))
        self.loop.stop()
