"""Time and randomness are given to what needs them, so that a whole run can be simulated from one
seed.

No module of jobs/ below process/ reads a clock, sleeps or draws but through an argument, whose
default may be real.
"""

import ast
import re

from tests.support.sources import ROOT, modules

MODULES = {"random", "secrets"}
SEEDED = {"random.Random"}
PROVIDERS = {"jobs/storage/durable.py"}  # names of drafts
NAMES = {
    *(
        "time.time",
        "time.time_ns",
        "time.monotonic",
        "time.monotonic_ns",
        "time.perf_counter",
        "time.sleep",
    ),
    *("uuid.uuid4", "datetime.now", "dt.datetime.now"),
}
# any file that names one has such a word, however its lines are broken
SPELLED = re.compile(
    rf"\b(?:{'|'.join(MODULES)})\b|\.\s*(?:{'|'.join(name.rpartition('.')[2] for name in NAMES)})\b"
)
ABOVE = {"process", "streams", "commands"}


def reached_for(text):
    """The clocks and the randomness that a module names, but for defaults of arguments: those can
    be given.
    """
    if not SPELLED.search(text):
        return set()
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


def test_no_module_calls_a_clock_or_a_random_source_that_a_caller_cannot_replace():
    assert reaching() == {}


def test_a_planted_clock_call_is_found_and_a_replaceable_default_is_accepted():
    assert reached_for("import time\ndef age(since):\n    return time.time() - since\n") == {
        "time.time"
    }
    assert (
        reached_for("import time\ndef age(since, clock=time.time):\n    return clock() - since\n")
        == set()
    )
