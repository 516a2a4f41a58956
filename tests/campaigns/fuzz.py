"""Damaged files, 20,000 for each reader: one clear refusal or a reading, never more, and no memory.

What is damaged, and how, is `tests/damaged_files.py`'s; a case is a reader and 500 seeds.
"""

import sys
from pathlib import Path

from campaign import run_campaign
from damaged_files import LIMIT_S, MOST_BYTES, examined, readers
from tables import table_head, table_row

sys.path.extend(
    str(Path(__file__).parents[1] / name) for name in ("profile", "report", "report/html")
)
from test_damaged_profiles import READERS as OF_PROFILES
from test_report_file import READERS as OF_THE_TAB

FILES = 20_000
FILES_OF_A_CASE = 500

READERS = {**readers(), **OF_THE_TAB, **OF_PROFILES}


def cases():
    """Return readers with the first of their seeds."""
    return [f"{kind}:{first}" for first in range(0, FILES, FILES_OF_A_CASE) for kind in READERS]


def examine(case):
    kind, first = case.split(":")
    seeds = range(int(first), int(first) + FILES_OF_A_CASE)
    try:
        return examined(READERS[kind], seeds)
    except AssertionError as error:
        return {"broken": f"{error}: {error.__cause__!r}"}


def is_right(result):
    """Return whether all files of a case were refused or read, at once and in little memory."""
    return (
        "broken" not in result
        and result["grown_bytes"] < MOST_BYTES
        and result["slowest_s"] < LIMIT_S
    )


def table(results):
    rows = [table_head("reader | files | refused | read | answered otherwise")]
    for kind in READERS:
        each = [result for result in results if result["case"].startswith(f"{kind}:")]
        refused, read = (sum(r.get(key, 0) for r in each) for key in ("refused", "read"))
        broken = sum(not is_right(result) for result in each)
        rows.append(table_row(kind, f"{refused + read:,}", f"{refused:,}", f"{read:,}", broken))
    return "\n".join(rows)


if __name__ == "__main__":
    run_campaign("fuzz", cases(), examine, table)
