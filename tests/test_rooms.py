"""The rooms of jobs/: each is a stage of a row's way, and imports only rooms below it. No files
form a circle.
"""

from tests.support.sources import PACKAGES, ROOT, imports, modules

# bottom to top; rooms of one line do not know each other
FLOORS = (
    {"schema", "errors", "wording", "arrow_values"},
    {"storage"},
    {"declare"},
    {"input", "ledger", "clients", "limits"},
    {"task", "tables"},
    {"run"},
    {"process"},
    {"streams"},
    {"commands"},
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
LOOSE_FILES = {"__init__", "errors", "wording", "arrow_values"}


def room_of(name):
    """The room of a dotted name below jobs."""
    return name.split(".")[1]


def climbs(importing, imported):
    """Whether an import goes up, or sideways into a room of the same floor."""
    if room_of(importing) == room_of(imported):
        return False
    if FLOOR[room_of(importing)] == FLOOR[room_of(imported)] == 0:
        return False
    return FLOOR[room_of(imported)] >= FLOOR[room_of(importing)]


def dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def arrows():
    """(importing file, imported file) of the product's packages: lazy and type-only imports too."""
    known = {dotted(path) for package in PACKAGES for path in modules(package)}
    found = set()
    for package in PACKAGES:
        for path in modules(package):
            for _, name in imports(path):
                target = name if name in known else name.rpartition(".")[0]
                if target in known and target != dotted(path):
                    found.add((dotted(path), target))
    return found


def test_a_room_imports_only_rooms_below_it():
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules("jobs")
        if path.parent != ROOT / "jobs"
        for line, name in imports(path)
        if name.startswith("jobs.") and climbs(dotted(path), name)
    ]
    assert wrong == []


def test_every_file_of_jobs_is_in_a_room():
    assert {
        path.name
        for path in (ROOT / "jobs").iterdir()
        if path.is_dir() and path.name != "__pycache__"
    } <= set(FLOOR)
    assert {path.stem for path in (ROOT / "jobs").glob("*.py")} == LOOSE_FILES


def test_an_import_of_a_higher_room_is_found():
    assert climbs("jobs.declare.lookup", "jobs.clients.client")
    assert climbs("jobs.ledger.keys", "jobs.clients.client")
    assert not climbs("jobs.task.runner", "jobs.ledger.plan")


def test_no_files_import_each_other_in_a_circle():
    assert circles(arrows()) == []


def box_of(name):
    """An inner room of a room of jobs/, or a file in none."""
    return ".".join(name.split(".")[:3])


def test_inner_rooms_and_the_files_beside_them_form_no_circle():
    between = {(box_of(start), box_of(end)) for start, end in arrows() if start.startswith("jobs.")}
    assert circles({(start, end) for start, end in between if start != end}) == []


def test_a_planted_circle_of_inner_rooms_is_found():
    assert circles({("jobs.run.keys", "jobs.run.plan"), ("jobs.run.plan", "jobs.run.keys")}) != []


def circles(arrows):
    onward = {}
    for start, end in arrows:
        onward.setdefault(start, set()).add(end)
    done, found = set(), []

    def visit(module, way):
        if module in way:
            found.append([*way[way.index(module) :], module])
            return
        if module in done:
            return
        for after in sorted(onward.get(module, ())):
            visit(after, [*way, module])
        done.add(module)

    for module in sorted(onward):
        visit(module, [])
    return found
