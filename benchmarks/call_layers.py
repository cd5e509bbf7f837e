"""What each layer around a call over HTTP costs in CPU, beside bare aiohttp.

    python benchmarks/call_layers.py             4,000 calls, 50 in flight, 5 rounds in turns
    python benchmarks/call_layers.py --profile   where the last layer's event loop spends its time

    aiohttp   a session, workers, and each answer's JSON
    watch     the same through connections that detect extra responses
    client    the request of a declaration, strict JSON, conditions and columns
    task      a partition in this process: rows, operator, outcomes, Arrow
    ledger    the same, with every answer stored before its row leaves

CPU is that of this process, its threads included; the service runs in another one. Half of the keys
take 41 ms and half 59 ms, because calls that all take as long come back in bursts, which bare
aiohttp serves at less.
"""

import asyncio
import statistics
import tempfile
import time

import aiohttp
import pyarrow as pa
import uneven_service
from command_line import option_parser
from contenders import bare_asyncio
from usage import profiled_loop

from jobs.clients.http.connections import WatchedConnector
from jobs.clients.http.http_client import HttpClient
from jobs.run.plan.options import RunOptions, plan_ledger
from jobs.task.plan import PartitionPlan
from jobs.task.rows.arrow_batches import BatchLayout
from jobs.task.runner import PartitionRun
from tidegate import Enrichment, HttpLookup, Input, Ledger, Output, Service

Keys = list[tuple[str, str]]


class Layers:
    """The same calls through one layer more each.

    Args:
        url: The service.
        in_flight: Calls in flight.
        root: A folder for ledgers.
    """

    def __init__(self, url: str, in_flight: int, root: str) -> None:
        self._url, self._in_flight, self._root = url, in_flight, root
        self._ledgers = 0
        self._lookup = HttpLookup(
            name="f", service=Service(name="s", url=url, max_concurrency=in_flight),
            request="GET /v1/{origin}/{hour}", keys={"origin": "origin", "hour": "hour"},
            returns="temp_c DOUBLE", timeout=30.0,
        )  # fmt: skip

    def aiohttp(self, keys: Keys) -> None:
        bare_asyncio(keys, self._url, self._in_flight)

    def watch(self, keys: Keys) -> None:
        def watched(limit: int) -> aiohttp.BaseConnector:
            return WatchedConnector(lambda: 0.05, lambda _keys: None, limit=limit)

        bare_asyncio(keys, self._url, self._in_flight, watched)

    def client(self, keys: Keys) -> None:
        async def main() -> None:
            client, waiting = HttpClient(self._lookup, self._in_flight), iter(keys)

            async def worker() -> None:
                for key in waiting:
                    client.columns(await client.call(key))

            await client.open()
            await asyncio.gather(*(worker() for _ in range(self._in_flight)))
            await client.close()

        asyncio.run(main())

    def task(self, keys: Keys, *, stored: bool = False) -> None:
        self._ledgers += 1
        declared = Enrichment(
            name="layers",
            input=Input(path="in"),
            lookups=[self._lookup],
            output=Output(path="out"),
            ledger=Ledger(f"{self._root}/{self._ledgers}"),
        )
        ledger = plan_ledger(declared, self._lookup, "run", RunOptions()) if stored else None
        layout = BatchLayout(
            carried=("_source_file", "_source_row"), keys=(("__key_0_0", "__key_0_1"),),
            order_key=(), event_time=None, max_out_of_orderness_ms=0, lookups=("f",),
            answers=(self._lookup.columns,), key_names=(("origin", "hour"),),
        )  # fmt: skip
        plan = PartitionPlan(
            (self._lookup,), ((self._in_flight,),), "ordered", layout, None, ledgers=(ledger,)
        )
        origins, hours = zip(*keys, strict=True)
        rows = pa.table(
            {
                "__key_0_0": origins,
                "__key_0_1": hours,
                "_source_file": pa.nulls(len(keys), pa.string()),
                "_source_row": range(len(keys)),
            }
        )
        for _ in PartitionRun(plan, 0, 0).run(iter(rows.to_batches(max_chunksize=1_000))):
            pass

    def ledger(self, keys: Keys) -> None:
        self.task(keys, stored=True)


def keys_of(calls: int) -> Keys:
    return [(f"KEY-{number:07d}", "2013-01-10T05:00:00Z") for number in range(calls)]


def main() -> None:
    options = option_parser(
        __doc__, calls=4_000, in_flight=50, rounds=5, profile=False
    ).parse_args()
    keys = keys_of(options.calls)
    with (
        uneven_service.running(0.041, 0.5, 0.059) as url,
        tempfile.TemporaryDirectory(prefix="tidegate-bench-") as root,
    ):
        layers = Layers(url, options.in_flight, root)
        if options.profile:
            with profiled_loop(60):
                layers.ledger(keys)
            return
        chain = [layers.aiohttp, layers.watch, layers.client, layers.task, layers.ledger]
        figures: dict[str, list[float]] = {layer.__name__: [] for layer in chain}
        for layer in chain:  # imports and first times
            layer(keys[:1_000])
        for _ in range(options.rounds):
            for layer in chain:
                began = time.process_time()
                layer(keys)
                figures[layer.__name__].append(1e6 * (time.process_time() - began) / len(keys))
        print(f"{'':10}{'µs a call':>10}{'/ aiohttp':>10}{'layer':>8}   each round")
        bare = before = statistics.median(figures["aiohttp"])
        for name, turns in figures.items():
            took = statistics.median(turns)
            print(
                f"{name:10}{took:10.1f}{took / bare:10.2f}{(took - before) / bare:8.0%}   "
                f"{' '.join(f'{turn:.0f}' for turn in turns)}"
            )
            before = took


if __name__ == "__main__":
    main()
