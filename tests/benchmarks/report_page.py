"""How long a browser takes to show `report.html`: of analyses that are given, and of 1,000 layers.

    PYTHONPATH=tests:tests/report python tests/benchmarks/report_page.py advisor-out/deepconn

Each file is opened five times, each time in a page of its own. Printed are the medians of the
clock, from asking for the file until timeline, layers and copies are drawn, and of the time for
which the page computes, which other work on the machine changes less.
"""

from __future__ import annotations

import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from browsers import computed_ms, open_browser, open_report
from tab_samples import write_sample

from placement_advisor.files.output import LOG_FOLDER
from placement_advisor.report.html_file import report_html

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OPENED = 5
LAYERS = 1_000
# As many candidates as an analysis has.
SPLITS = 11


def measure(browser: Browser, name: str, analysis: Path, folder: Path) -> None:
    """Print how large the report of an analysis is, and how long it takes to be drawn."""
    file = folder / "report.html"
    file.write_text(report_html(analysis), encoding="utf-8")
    clock_ms, page_ms = [], []
    for _ in range(OPENED):
        page = browser.new_page(viewport={"width": 1_280, "height": 900})
        begin_s = time.perf_counter()
        page_ms.append(computed_ms(page, partial(open_report, page, file)))
        clock_ms.append((time.perf_counter() - begin_s) * 1_000)
        page.close()
    print(
        f"{name}: {file.stat().st_size:,} bytes, drawn after {median(clock_ms):.0f} ms, "
        f"computing for {median(page_ms):.0f} ms"
    )


def main(analyses: list[Path]) -> None:
    """Measure the reports of some analyses, and that of a large model that is made up."""
    with open_browser() as browser, tempfile.TemporaryDirectory() as temp:
        for analysis in analyses:
            measure(browser, analysis.name, analysis, Path(temp))
        layers = [f"encoder/block_{i // 10}/dense_{i}" for i in range(LAYERS)]
        large = Path(temp) / "large"
        write_sample(large / LOG_FOLDER, layers, splits=SPLITS)
        measure(browser, f"{LAYERS:,} layers", large, Path(temp))


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
