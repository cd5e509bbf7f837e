"""The command line of a benchmark."""

import argparse
from typing import Any


def option_parser(about: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """Return a parser with an option for each default, of its type; False makes a flag.

    about: The docstring of the benchmark, printed as it is.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        option = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, type=type(default), default=default)
    return parser
