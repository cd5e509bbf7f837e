"""The machine that a process runs on."""

import resource
from pathlib import Path

# each with the least that Spark and the local engine get along with
LIMITS = (
    (resource.RLIMIT_NOFILE, 1000, "open files (ulimit -n)"),
    (resource.RLIMIT_NPROC, 1000, "processes and threads of this user (ulimit -u)"),
    (resource.RLIMIT_AS, 16 << 30, "bytes of address space (ulimit -v)"),
)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> str:
    """Return the kernel's name for this start of the machine; empty if it has none.

    No two machines share it, which cannot be said of their host names.
    """
    return BOOT_ID.read_text(encoding="utf-8").strip() if BOOT_ID.exists() else ""


def low_limits() -> str:
    """Return a sentence with the limits of this process that may stop a run; empty if none is."""
    soft = [(resource.getrlimit(kind)[0], enough, name) for kind, enough, name in LIMITS]
    low = [f"{limit:,} {name}" for limit, enough, name in soft if 0 <= limit < enough]
    return f" Low limits of this process may be the cause: {', '.join(low)}." if low else ""
