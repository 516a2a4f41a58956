"""The example of docs/place.md, as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "place.md"
_FILE = re.compile(r"<!-- (\w+\.py) -->\n\n```python\n(.*?)```", re.DOTALL)
_ADVISOR = "from placement_advisor.cli.app import main; main()"
_LIMIT_S = 600


@pytest.mark.slow
def test_the_example_of_the_page_trains_by_a_placement(tmp_path):
    files = dict(_FILE.findall(PAGE.read_text(encoding="utf-8")))
    for name, code in files.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    analyze = [sys.executable, "-c", _ADVISOR, "analyze", "pair.py", "--quick", "-q"]
    output = tmp_path / "advisor-out" / "pair"
    for words in ([*analyze, "-o", str(output)], [sys.executable, "train.py"]):
        ran = subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
        assert ran.returncode == 0, ran.stderr
    losses = [float(line) for line in ran.stdout.splitlines()[:8]]
    assert losses[-1] < losses[0]
