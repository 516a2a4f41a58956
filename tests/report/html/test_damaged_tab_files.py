"""Damaged files of the tab: each is refused in one message, or can be shown."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from damaged_files import LIMIT_S, MOST_BYTES, Reader, examined
from tab_samples import write_sample

from placement_advisor.files.output import DETAILS, OVERVIEW
from placement_advisor.report.tensorboard.tab import compact, read_details, read_overview


def readers() -> dict[str, Reader]:
    """Return what reads each file of the tab, and makes JSON of it again."""
    with tempfile.TemporaryDirectory() as folder:
        write_sample(Path(folder), [f"layer_{i}" for i in range(6)])
        file = Path(folder) / OVERVIEW
        overview = read_overview(file)
        of_all = file.read_bytes()
        of_one = (Path(folder) / DETAILS / "alternating.json").read_bytes()
    return {
        "overview": Reader(
            suffix=".json", sound=of_all, read=lambda path: compact(read_overview(path))
        ),
        "details": Reader(
            suffix=".json", sound=of_one, read=lambda path: compact(read_details(path, overview))
        ),
    }


READERS = readers()


@pytest.mark.parametrize("kind", READERS)
def test_damaged_files_of_the_tab_are_refused_in_one_message_or_read(kind: str) -> None:
    found = examined(READERS[kind], range(300))
    assert found["refused"] > 100
    assert found["read"] > 0
    assert found["grown_bytes"] < MOST_BYTES
    assert found["slowest_s"] < LIMIT_S
