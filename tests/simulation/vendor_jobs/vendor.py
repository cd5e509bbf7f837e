"""A vendor of jobs, with its invoice: it bills what its dialect bills, whatever becomes of the
answers.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.simulation.faults import Faults
from tests.simulation.night_at_work import scheduler
from tests.simulation.vendor_jobs.dialects import Dialect

LASTS = (0.0, 20.0, 90.0, 300.0)  # s of a job
CANCELS_WITHIN = 90.0  # s, where that takes long
MISSES = 7  # each so many keys is unknown to the vendor
HOPELESS = 11  # each so many keys is one that the vendor refuses for good
MOST_TOKENS = 9  # of an item
ITEM, TOKEN = Decimal("0.0040"), Decimal("0.0003")  # USD
CREATED, RUNNING, COMPLETED, REFUSED = "created", "running", "completed", "refused"
EXPIRED, CANCELLED = "expired", "cancelled"


def truth(text: str) -> str | None:
    """What the vendor knows of a key; None where it knows nothing."""
    return None if _digest(text)[0] % MISSES == 0 else f"label of {text}"


def is_hopeless(text: str) -> bool:
    """Whether the vendor refuses the item for good."""
    return _digest(text)[1] % HOPELESS == 0


def tokens(text: str) -> int:
    return 1 + _digest(text)[2] % MOST_TOKENS


def _digest(text: str) -> bytes:
    return hashlib.md5(text.encode()).digest()


@dataclass
class VendorJob:
    """A job at the vendor.

    Attributes:
        items: Text by id.
        outcomes: By id: "ok", "failed", "final"; missing where the vendor did not look at the item.
        lines: Its results.
        bill: What the vendor bills, by id, in USD.
        accepted_at: When it was started.
    """

    name: str
    token: str
    items: Mapping[str, str]
    state: str = CREATED
    outcomes: dict[str, str] = field(default_factory=dict)
    bill: dict[str, Decimal] = field(default_factory=dict)
    accepted_at: float = 0.0
    ends_at: float = 0.0
    lines: list[dict[str, Any]] = field(default_factory=list)
    is_cancelling: bool = False
    is_purged: bool = False

    @property
    def is_over(self) -> bool:
        return self.state not in (CREATED, RUNNING)

    @property
    def answered(self) -> set[str]:
        return {item for item, outcome in self.outcomes.items() if outcome == "ok"}


@dataclass
class JobVendor:
    """Jobs by name, in order.

    Attributes:
        on_accept: Told of a job before it is taken, which is what costs.
        on_end: Told of a job that is over.
    """

    faults: Faults
    dialect: Dialect
    takes_long: float
    hides: float
    on_accept: Callable[[VendorJob], None] = lambda _: None
    on_end: Callable[[VendorJob], None] = lambda _: None
    jobs: dict[str, VendorJob] = field(default_factory=dict)
    files: dict[str, dict[str, str]] = field(default_factory=dict)
    waiting: dict[int, object] = field(default_factory=dict)  # of the shared connections
    requests: int = 0

    def __post_init__(self) -> None:
        self._draws = scheduler().stream("vendor")

    # -- what a request does -----------------------------------------------------------------------
    def upload(self, items: Mapping[str, str]) -> str:
        name = f"file-{len(self.files) + 1}"
        self.files[name] = dict(items)
        return name

    def submit(self, token: str, items: Mapping[str, str]) -> VendorJob:
        """Create a job, and start it unless that takes a request more."""
        known = [job for job in self.jobs.values() if job.token == token]
        if known and self.dialect.recovery == "token":
            return known[0]
        job = VendorJob(f"job-{len(self.jobs) + 1}", token, items)
        self.jobs[job.name] = job
        if self.dialect.takes != "start":
            self.start(job)
        else:
            job.accepted_at = scheduler().now
        return job

    def start(self, job: VendorJob) -> None:
        night = scheduler()
        night.say("accept", job.name, job.token, *job.items.values())
        self.on_accept(job)
        job.state, job.accepted_at = RUNNING, night.now
        if self.dialect.bills == "all":
            job.bill = dict.fromkeys(job.items, ITEM)
        lasts = self._draws.choice(LASTS) * self._draws.random()
        strikes = self.faults.strikes
        end, share = COMPLETED, 1.0
        if self.dialect.bills != "all" and strikes("job refused"):
            end, share = REFUSED, 0.0
        elif strikes("job stuck"):
            lasts = 1e9
        elif self.dialect.bills != "all" and strikes("job expired"):
            end, share = EXPIRED, self._draws.random()
        elif self.dialect.bills != "all" and strikes("job cancelled by the vendor"):
            end, share = CANCELLED, self._draws.random()
        job.ends_at = night.now + lasts
        night.after(lasts, lambda: self._finish(job, end, share))

    def _finish(self, job: VendorJob, end: str, share: float) -> None:
        """End a job, which looked at a share of its items. Callable from a timer."""
        if job.is_over:
            return
        job.state = end
        looked_at = [*job.items][: round(share * len(job.items))]
        bills, strikes = self.dialect.bills, self.faults.strikes
        for item in looked_at:
            text = job.items[item]
            if bills != "all" and strikes("item left out"):
                continue
            outcome = "final" if is_hopeless(text) else "ok"
            outcome = "failed" if strikes("item failed") else outcome
            job.outcomes[item] = outcome
            if bills != "all" and (bills == "processed" or outcome == "ok"):
                job.bill[item] = ITEM + (TOKEN * tokens(text) if self.dialect.by_token else 0)
        job.is_purged = strikes("results purged")
        job.lines = self._lines(job)
        scheduler().say("over", job.name, end, *job.outcomes.values())
        self.on_end(job)

    def cancel(self, job: VendorJob) -> bool:
        """Begin to cancel. Returns False for a job that is over or being cancelled."""
        if job.is_over or job.is_cancelling or job.state == CREATED:
            return False
        job.is_cancelling = True
        takes = CANCELS_WITHIN * self._draws.random()
        share = self._draws.random()
        takes = takes if self.faults.strikes("cancel takes long") else 0.0
        scheduler().after(takes, lambda: self._finish(job, CANCELLED, share))
        return True

    def word(self, job: VendorJob) -> str:
        """The job's state, as the vendor says it."""
        if job.is_over:
            return self.dialect.word(job.state)
        if job.state == CREATED:
            return CREATED
        running, night = self.dialect.running, scheduler()
        passed = (night.now - job.accepted_at) / max(1.0, job.ends_at - job.accepted_at)
        return running[min(len(running) - 1, int(passed * len(running)))]

    def listed(self) -> tuple[list[VendorJob], bool]:
        """The jobs that its list shows, and whether that is all of them."""
        now = scheduler().now
        shown = [job for job in self.jobs.values() if now >= job.accepted_at + self.hides]
        return shown, len(shown) == len(self.jobs)

    def lines(self, job: VendorJob) -> list[dict[str, Any]]:
        """The results of a job, in another order each time."""
        return self._draws.sample(job.lines, len(job.lines))

    def _lines(self, job: VendorJob) -> list[dict[str, Any]]:
        """The results, with what else vendors write there."""
        found = [self._line(job, item, outcome) for item, outcome in job.outcomes.items()]
        if not self.dialect.by_token and found and self.faults.strikes("result doubled"):
            found.append(found[int(len(found) * self._draws.random())])
        answered = [item for item, outcome in job.outcomes.items() if outcome == "ok"]
        if answered and self.faults.strikes("failure beside a result"):
            one, final = self._draws.choice(answered), self._draws.random() < 0.5
            found.append({"id": one, "error": "cannot read it: expired", "final": final})
        if found and self.faults.strikes("foreign result"):
            name = self._draws.choice(("of nobody here", "A" * 22, ""))
            found.append({"id": name, "answer": {"label": "foreign"}, "tokens": 0})
        return found

    def _line(self, job: VendorJob, item: str, outcome: str) -> dict[str, Any]:
        text = job.items[item]
        if outcome != "ok":
            return {"id": item, "error": f"cannot read it: {outcome}", "final": outcome == "final"}
        label = truth(text)
        return {
            "id": item,
            "answer": None if label is None else {"label": label},
            "tokens": tokens(text),
        }

    # -- the invoice -------------------------------------------------------------------------------
    def accepted(self) -> list[VendorJob]:
        return [job for job in self.jobs.values() if job.state != CREATED]
