"""The machine that a process runs on."""

from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> str:
    """Return the kernel's name for this start of the machine; empty if it has none.

    No two machines share it, which cannot be said of their host names.
    """
    return BOOT_ID.read_text(encoding="utf-8").strip() if BOOT_ID.exists() else ""
