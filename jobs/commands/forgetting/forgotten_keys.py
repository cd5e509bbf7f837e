"""Reads the keys to forget from a file, and lists their possible forms in the ledger."""

import contextlib
import csv
import decimal
import itertools
import json
import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jobs.declare.lookup import Lookup
from jobs.errors import DeclarationError
from jobs.ledger.keys import key_text


def read(lookup: Lookup, path: str) -> list[tuple[str, ...]]:
    """Read keys from a CSV file with a header of the key's parts. Raises DeclarationError."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.reader(lines, strict=True)
            names = next(reader, [])
            if sorted(names) != sorted(lookup.keys):
                raise DeclarationError(
                    f"{path}: its first line names {', '.join(sorted(names)) or 'nothing'}; it "
                    "must name the parts of "
                    f"the key of lookup {lookup.name}: {', '.join(lookup.keys)}."
                )
            found = [
                _key(lookup, names, row, f"{path}, line {reader.line_num}") for row in reader if row
            ]
    except csv.Error as error:  # the rest of the file could be one key
        raise DeclarationError(
            f"{path}: a quote is not closed, or text follows a closing quote; double a quote "
            "inside a quoted value. Nothing was forgotten."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(f"--key-file {path}: it cannot be read: {error}.") from error
    if not found:
        raise DeclarationError(f"{path} contains no key; write a key on each line below the names.")
    return found


def _key(lookup: Lookup, names: list[str], row: list[str], where: str) -> tuple[str, ...]:
    if len(row) != len(names):
        raise DeclarationError(
            f"{where}: it has {len(row)} fields and the first line {len(names)}; write a value "
            "with a comma in it in double quotes. Nothing was forgotten."
        )
    given = dict(zip(names, row, strict=True))
    return tuple(given[name] for name in lookup.keys)


def in_order(
    keys: Iterable[tuple[str, ...]], parts: Sequence[str], wanted: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return the keys with their parts in this order; unchanged if it has other parts."""
    order = wanted if sorted(wanted) == sorted(parts) else parts
    return [tuple(key[parts.index(part)] for part in order) for key in keys]


def possible_texts(keys: Iterable[tuple[str, ...]]) -> set[str]:
    """Return the possible texts of these keys in the ledger.

    A part that looks like a number, a boolean, an array or a struct may have been of that type, and
    a key that is personal now may have been stored openly before.
    """
    found = set()
    for key in keys:
        for parts in itertools.product(*map(_readings, key)):
            found |= {key_text(parts), key_text(parts, hidden=True)}
    return found


def _readings(part: str) -> list[Any]:
    readings: list[Any] = [part]
    if re.fullmatch(r"-?[0-9]+\.[0-9]+", part):
        readings.append(decimal.Decimal(part))  # the ledger has 1E-7 for 0.0000001
    # OverflowError: a number beyond all floats, or beyond those of 32 bits
    with contextlib.suppress(ValueError, OverflowError, RecursionError):
        value = json.loads(part)
        if isinstance(value, bool | int | float | list | dict):
            readings.append(value)
            if isinstance(value, int | float) and not isinstance(value, bool):
                readings.append(float(value))
                readings += struct.unpack("f", struct.pack("f", value))  # of a FLOAT
    return readings
