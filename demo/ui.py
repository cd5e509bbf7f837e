"""Serves Dagster on the demo's data, with the weather service and the reports, until Ctrl-C.

Run `make ui` or `python -m demo.ui`; TIDEGATE_WEATHER_PORT sets the port of the weather service.
"""

import os
import sys

from demo.surroundings import environment, prepare, weather_program
from orchestration.dagster.web import ui

WEATHER_PORT = "TIDEGATE_WEATHER_PORT"


def main() -> int:
    port = os.environ.get(WEATHER_PORT, "8088")
    print(prepare(None), flush=True)  # the whole year, so that any day can be materialized
    settings = environment(f"http://127.0.0.1:{port}")
    return ui.serve(settings, [weather_program(port)], {WEATHER_PORT: port})


if __name__ == "__main__":
    sys.exit(main())
