"""python -m tests.simulation.leftovers: looks for what the simulation did not replace in the loaded
product.
"""

import sys

from tests.simulation.installation import REPLACED, parts_of, product_modules
from tests.simulation.product import install

NOT_IN_NIGHTS = ("jobs.process.", "jobs.tables.")  # nights do not run them


def leftovers() -> list[str]:
    """The places of loaded modules that still hold a real thread, clock, socket or random
    number.
    """
    found: list[str] = []
    seen: set[int] = set()
    for module in product_modules():
        if not module.__name__.startswith(NOT_IN_NIGHTS):
            holders = [module, *(part for part in parts_of(module, seen) if isinstance(part, type))]
            for holder in holders:
                held = (name for name, value in vars(holder).items() if id(value) in REPLACED)
                found += [f"{module.__name__}: {holder.__name__}.{name}" for name in held]
    return found


def main() -> int:
    assert leftovers(), "a product that nothing was replaced in"
    install()
    found = leftovers()
    print(len(product_modules()) if not found else "\n".join(found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
