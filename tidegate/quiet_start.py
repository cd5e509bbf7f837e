"""Lets Ctrl-C end the command without a traceback while it loads its modules, about a second."""

import os
import signal
import sys


def is_command() -> bool:
    """Return whether this process was started as `tidegate` or `python -m tidegate`."""
    if sys.argv[:1] == ["-m"]:  # Python is looking for the module
        return "tidegate" in sys.orig_argv[sys.orig_argv.index("-m") :][1:2]
    return os.path.basename("".join(sys.argv[:1])) == "tidegate"  # noqa: PTH119  # loads faster


if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `main` can catch it
