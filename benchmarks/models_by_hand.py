"""The job of benchmarks/models.py as one writes it by hand: no ledger, limits, checks, or bill."""

import asyncio
import json
import os
import sys

import aiohttp
import pyarrow as pa
import pyarrow.parquet as pq

PROMPT = "Name the topic of the review, and score how content its author is, from 1 to 5."


async def main(source, target):
    rows = pq.read_table(source).to_pylist()
    gate = asyncio.Semaphore(16)
    headers = {"Authorization": f"Bearer {os.environ['MODEL_KEY']}"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def label(row):
            messages = [
                {"role": "system", "content": PROMPT}, {"role": "user", "content": row["review"]},
            ]  # fmt: skip
            body = {"model": "small-1", "max_tokens": 100, "messages": messages}
            async with gate, session.post(os.environ["MODEL_URL"], json=body) as response:
                answer = await response.json()
            return row | json.loads(answer["choices"][0]["message"]["content"])

        labelled = await asyncio.gather(*map(label, rows))
    pq.write_table(pa.Table.from_pylist(labelled), target)


asyncio.run(main(*sys.argv[1:]))
