"""docs/your-first-model.md, command by command, on what `tidegate init --with model` makes."""

import datetime as dt
import importlib
import re
import shlex
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from jobs.wording import money
from tests.support.documents import blocks
from tidegate.__main__ import main

pytestmark = pytest.mark.process
PAGE = (Path(__file__).parents[3] / "docs" / "your-first-model.md").read_text()
MONTH = f"{dt.datetime.now(dt.UTC):%Y-%m}"


def commands():
    return [line for block in blocks("docs/your-first-model.md", "bash")
            for line in block.splitlines()]  # fmt: skip


@pytest.mark.usefixtures("modules_of_others")
def test_the_page_ends_with_a_table_whose_cost_is_the_sum_of_the_invoices(
    project, monkeypatch, capsys
):
    init, enter, *others = commands()
    assert main(shlex.split(init)[1:]) == 0
    monkeypatch.chdir(enter.removeprefix("cd "))
    monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path])
    sample = importlib.import_module("sample")
    monkeypatch.setenv("MODEL_KEY", "of-the-stand-in")
    invoices, printed = {}, {}
    for command in others:
        _, program, *arguments = shlex.split(
            command.replace("2026-11", MONTH) if "costs" in command else command
        )
        assert program == "sample.py"
        capsys.readouterr()
        with sample.model_service() as server:
            monkeypatch.setenv("MODEL_URL", server.url)
            assert main(arguments) == 0
        name = arguments[0]
        invoices[name], printed[name] = server.invoice, capsys.readouterr().out
    (billed,) = re.findall(r"billed .* USD", printed["try"])
    assert billed in PAGE
    assert [name for name, invoice in invoices.items() if invoice] == ["try", "eval", "run"]
    lines = {line.split("  ")[0]: line for line in printed["eval"].splitlines()}
    right, brief = re.findall(r"([\d.]+) %", lines["score as labelled"])
    assert Decimal(brief) < Decimal(right), "as the page says"
    costs = [Decimal(cost) for cost in re.findall(r"([\d.]+) USD", lines["cost of 1,000"])]
    assert costs[1] < costs[0]
    assert re.search(r"cost  .*, .* to .* with 95 %, from \d+ stored answers", printed["plan"])
    total = sum(invoices.values(), Decimal(0))
    assert f"{MONTH}: {money(total, 'USD')}" in printed["costs"]
    first = Counter(sample.becomes(number) for number in range(sample.REVIEWS))
    assert first == {"fits": 178, "misfit": 13, "cut": 5, "refused": 4}, "as the page says"
    (look,) = blocks("docs/your-first-model.md", "python")
    exec(look, {})
    assert capsys.readouterr().out.strip() in PAGE
