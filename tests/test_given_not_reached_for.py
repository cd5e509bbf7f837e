"""Time and randomness are given to what needs them, so that a whole run can be simulated from one seed.

The modules below process/ that still reach for them are listed. The list may only shrink.
"""

import ast

from tests.support.sources import ROOT, modules

MODULES = {"random", "secrets"}
SEEDED = {"random.Random"}
PROVIDERS = {"jobs/durable.py"}  # names of drafts
NAMES = {
    *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.sleep"),
    *("uuid.uuid4", "datetime.now", "dt.datetime.now"),
}
ABOVE = {"process", "commands"}
STILL = {
    "jobs/clients/connections.py": {"time.monotonic"},
    "jobs/clients/http_session.py": {"dt.datetime.now"},
    "jobs/clients/request_counter.py": {"time.monotonic", "time.time"},
    "jobs/clients/sql_engine.py": {"time.monotonic"},
    "jobs/ledger/compaction.py": {"time.time_ns"},
    "jobs/ledger/erasure.py": {"secrets.token_hex", "time.time_ns"},
    "jobs/ledger/manifest.py": {"secrets.token_hex"},
    "jobs/ledger/store.py": {"secrets.token_hex"},
    "jobs/ledger/writer.py": {"secrets.token_hex", "time.monotonic"},
    "jobs/run/caps.py": {"datetime.now"},
    "jobs/run/coordinator.py": {"secrets.token_hex", "time.monotonic", "time.sleep"},
    "jobs/run/day.py": {"dt.datetime.now", "time.monotonic"},
    "jobs/run/enrich_day.py": {"time.sleep", "uuid.uuid4"},
    "jobs/run/estimate.py": {"datetime.now", "time.time_ns"},
    "jobs/run/hits.py": {"time.time_ns"},
    "jobs/run/ledger_session.py": {"secrets.randbits"},
    "jobs/run/metrics.py": {"dt.datetime.now"},
    "jobs/run/preflight.py": {"time.monotonic"},
    "jobs/run/progress.py": {"time.monotonic"},
    "jobs/run/terminal.py": {"time.monotonic"},
    "jobs/tables/leases.py": {"datetime.now", "time.monotonic", "time.sleep"},
    "jobs/tables/publishing.py": {"dt.datetime.now"},
    "jobs/task/driver_link.py": {"time.sleep"},
    "jobs/task/output_files.py": {"secrets.token_hex"},
    "jobs/task/runner.py": {"time.monotonic", "time.monotonic_ns", "time.time_ns"},
}


def reached_for(text):
    """The clocks and the randomness that a module names, but for defaults of arguments: those can be given."""
    tree = ast.parse(text)
    defaults = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for default in (*node.args.defaults, *node.args.kw_defaults)
        if default is not None
        for part in ast.walk(default)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in defaults:
            name = ast.unparse(node)
            if name in NAMES or (name.split(".")[0] in MODULES and name not in SEEDED):
                found.add(name)
    return found


def reaching():
    found = {}
    for path in modules("jobs"):
        room = path.relative_to(ROOT / "jobs").parts[0]
        name = path.relative_to(ROOT).as_posix()
        if room not in ABOVE and name not in PROVIDERS and (names := reached_for(path.read_text())):
            found[name] = names
    return found


def test_no_module_but_those_of_the_list_reaches_for_a_clock_or_randomness():
    new = {path: names - STILL.get(path, set()) for path, names in reaching().items()}
    assert {path: names for path, names in new.items() if names} == {}


def test_a_planted_call_is_found_and_a_default_that_can_be_given_is_not():
    assert reached_for("import time\ndef age(since):\n    return time.time() - since\n") == {"time.time"}
    assert reached_for("import time\ndef age(since, clock=time.time):\n    return clock() - since\n") == set()
