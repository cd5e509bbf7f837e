"""Commands that run several enrichments go on after one that ends early."""

import argparse

import pytest

from jobs.declare.finding.discovery import Discovered
from jobs.errors import TidegateError
from tidegate import Enrichment, HttpLookup, Input, Output, Service
from tidegate.__main__ import main
from tidegate.commands.several import run_each

LOOKUP = HttpLookup(
    name="asked", service=Service(name="s", url="http://s", max_concurrency=1), keys={"k": "k"},
    request="GET /{k}", returns="x INT", timeout=5.0,
)  # fmt: skip


def test_after_an_enrichment_that_ends_early_only_readers_of_its_table_are_skipped(capsys):
    def declared(name, **source):
        written = Output(path=f"data/published/{name}")
        return Discovered(
            name, Enrichment(name=name, input=Input(**source), lookups=[LOOKUP], output=written)
        )

    found = [
        declared("above", path="data/published/stopped", row_id=["k"], format="delta"),
        declared("stopped", path="data/raw/a"),
        declared("other", path="data/raw/b"),
    ]
    run = []

    def run_one(one):
        run.append(one.reference)
        if one.reference == "stopped":
            raise TidegateError("its day is being run.")
        return 0

    assert run_each(argparse.Namespace(json=False), found, run_one) == TidegateError.status
    assert sorted(run) == ["other", "stopped"]
    assert capsys.readouterr().err.splitlines() == [
        "its day is being run.", "above is not run: stopped did not publish."
    ]  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [["run", "--all", "--day", "2013-01-10"], ["dead-letters"]],
    ids=lambda given: given[0],
)
def test_a_package_without_an_enrichment_is_named_in_a_sentence(
    tmp_path, monkeypatch, capsys, command
):
    (tmp_path / "declared_none").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert main([*command, "--package", "declared_none"]) == 2
    sentence = "declared_none holds no Enrichment; declare one in a module.\n"
    assert capsys.readouterr().err == sentence
