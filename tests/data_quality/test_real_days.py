"""Real runs over columns and keys of every type, by call and out of the ledger: the checks find
nothing.
"""

import random
from dataclasses import replace

import pytest
from odd_days import DAY, Moody, declare, folders, give_input, run

from data_quality.catalogue import checks
from jobs.commands.expiry import expire_keys
from jobs.ledger.changes.compaction import compact
from jobs.run.plan.options import RunOptions

pytestmark = pytest.mark.spark


def of_values(declared):
    return tuple(
        spec
        for spec in checks(declared)
        if spec.name.endswith(("input_unchanged", "answers_match", "once"))
    )


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(50))
def test_days_with_columns_of_every_type_raise_no_alarm_from_call_or_ledger(
    here, service, monkeypatch, seed
):
    """A first run, then, where answers are kept: run again, replayed, remapped, refreshed, beside
    compactions.
    """
    dice = random.Random(f"days {seed}")
    if seed:  # the other checks have honest days of their own
        monkeypatch.setattr("data_quality.day.checks", of_values)
    service.answer = Moody(seed)
    names = give_input(dice, here / "raw" / f"date={DAY}", rows=dice.choice([5, 60, 300]))
    enrichment = declare(dice, seed, service.url, names)
    run(enrichment, "first")
    if enrichment.ledger is None:
        run(enrichment, "again")
        return
    what = dice.choice(["again", "replay", "remap", "refresh"])
    if dice.random() < 0.5:
        for folder in folders(enrichment):
            compact(folder)
    if what == "remap":
        http = next(lookup for lookup in enrichment.lookups if lookup.name == "rated")
        mapped = replace(http, returns=f"{http.returns}, twice DOUBLE", paths={"twice": "$.rate"})
        enrichment = replace(
            enrichment,
            lookups=[mapped if lookup is http else lookup for lookup in enrichment.lookups],
        )
    if what == "refresh":
        for folder in folders(enrichment):
            keys = folder.read(folder.parts())["key"].to_pylist()
            expire_keys(folder, dice.sample(sorted(set(keys)), len(set(keys)) // 2))
    rules = {
        "replay": RunOptions(ignore_ttl=True),
        "remap": RunOptions(may_call=False, ignore_ttl=True),
    }
    run(enrichment, what, rules.get(what))
