"""Lets samples of campaigns find what `make campaign-NAME` finds."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
