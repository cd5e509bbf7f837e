"""3,000 reviews labelled by a model: `tidegate run` on the local engine beside a job by hand.

python benchmarks/models.py --rounds 3

The declaration is the example of docs/models.md, with 16 calls in flight. The vendor's stand-in
runs in a separate process and answers after `--latency` s. The jobs run in turns; each figure is
the whole process with its start, and for Tidegate also ledger, checks and publishing.
"""

import asyncio
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from aiohttp import web
from command_line import option_parser
from usage import medians, run_measured

ROOT = Path(__file__).resolve().parents[1]
DAY, AT_ONCE = "2026-11-01", 16
PATH = "/v1/chat/completions"


def serve(pipe, latency):
    """Answer like a chat-completions service, in a separate process."""
    content = json.dumps({"topic": "price", "score": 3})
    message = {"role": "assistant", "content": content, "refusal": None}
    answer = json.dumps({
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 60, "completion_tokens": 12},
    })  # fmt: skip

    async def label(request):
        await request.read()
        await asyncio.sleep(latency)
        return web.Response(text=answer, content_type="application/json")

    async def main():
        app = web.Application()
        app.router.add_post(PATH, label)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1_000)
        await site.start()
        pipe.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(main())


def prepare(folder, rows, url):
    """Write the reviews of a day, and the example of docs/models.md for this address."""
    (example,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "models.md").read_text(), re.DOTALL
    )
    example = example.replace("https://model.example", url)
    example = example.replace("max_concurrency=32", f"max_concurrency={AT_ONCE}")
    (folder / "enrichments").mkdir()
    (folder / "enrichments" / "__init__.py").touch()  # else that of PYTHONPATH is loaded
    (folder / "enrichments" / "reviews.py").write_text(example)
    day = folder / "data" / "raw" / f"date={DAY}"
    day.mkdir(parents=True)
    reviews = [f"It came late, and it is not what I ordered; review {n}." for n in range(rows)]
    pq.write_table(pa.table({"id": range(rows), "review": reviews}), day / "a.parquet")


def main():
    options = option_parser(__doc__, rounds=3, rows=3_000, latency=0.1).parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs, options.latency), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    figures: dict[str, list[tuple[float, ...]]] = {"by hand": [], "tidegate": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        prepare(folder, options.rows, url)
        environment = os.environ | {
            "PYTHONPATH": str(ROOT), "MODEL_KEY": "of-the-stand-in",
            "XDG_STATE_HOME": str(folder / "state"),
        }  # fmt: skip
        by_hand = [sys.executable, str(ROOT / "benchmarks" / "models_by_hand.py")]
        by_hand += [f"data/raw/date={DAY}/a.parquet", "by_hand.parquet"]
        run = [
            sys.executable,
            "-m",
            "tidegate",
            "run",
            "reviews",
            "--day",
            DAY,
            "--engine",
            "local",
        ]
        for _ in range(options.rounds):
            of_hand = environment | {"MODEL_URL": f"{url}{PATH}"}
            figures["by hand"].append(run_measured(by_hand, cwd=folder, env=of_hand)[:2])
            for name in ("ledger", "labelled"):
                shutil.rmtree(folder / "data" / name, ignore_errors=True)
            figures["tidegate"].append(run_measured(run, cwd=folder, env=environment)[:2])
    server.terminate()
    least = options.rows * options.latency / AT_ONCE
    hand = medians(figures["by hand"])[0]
    heading = f"{'':10}{'wall s':>8}{'/ limit':>9}{'/ by hand':>11}{'CPU s':>8}"
    print(f"{heading}   medians of {options.rounds}")
    for name, rounds in figures.items():
        wall, cpu = medians(rounds)
        print(f"{name:10}{wall:8.2f}{wall / least:9.2f}{wall / hand:11.2f}{cpu:8.2f}")
        print("          " + "  ".join(f"{wall:.2f}" for wall, _ in rounds))


if __name__ == "__main__":
    main()
