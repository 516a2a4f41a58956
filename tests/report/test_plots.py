from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest
import sample_analysis

from placement_advisor.report.pictures.canvas import COMPUTE_COLOR, COPY_COLOR, EXPOSED_COLOR
from placement_advisor.report.pictures.plots import plot_comparison, plot_timeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from placement_advisor.analysis.analysis_result import Analysis

PLOTS = (plot_timeline, plot_comparison)
NAMES = ("sample", "unmeasured", "hostile", "four_devices", "not_applicable")


def _pixels(path: Path) -> np.ndarray:
    return np.asarray(matplotlib.image.imread(path))[:, :, :3]


def _count(pixels: np.ndarray, color: str) -> int:
    wanted = np.asarray(matplotlib.colors.to_rgb(color))
    return int((np.abs(pixels - wanted).max(axis=2) < 0.02).sum())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("plot", PLOTS)
def test_a_picture_is_large_enough_to_read_and_has_colours(
    plot: Callable[[Analysis, Path], None], name: str, tmp_path: Path
) -> None:
    plot(getattr(sample_analysis, name)(), tmp_path / "picture.png")
    pixels = _pixels(tmp_path / "picture.png")
    height, width, _ = pixels.shape
    assert width >= 1_200
    assert height >= 250
    assert _count(pixels, COMPUTE_COLOR) > 1_000
    assert list(tmp_path.iterdir()) == [tmp_path / "picture.png"]


def test_compute_and_copies_take_as_many_pixels_as_time(analysis: Analysis, tmp_path: Path) -> None:
    towers = replace(analysis, candidates=(analysis.candidates[1],))
    plot_timeline(towers, tmp_path / "timeline.png")
    pixels = _pixels(tmp_path / "timeline.png")
    # simulated 52.0 ms of compute and 2.1 ms of copies; measured is both times 1.04
    share = _count(pixels, COPY_COLOR) / _count(pixels, COMPUTE_COLOR)
    assert share == pytest.approx(2.1 / 52.0, rel=0.15)


def test_exposed_copies_have_a_colour_of_their_own_in_the_comparison(
    analysis: Analysis, tmp_path: Path
) -> None:
    plot_comparison(analysis, tmp_path / "comparison.png")
    assert _count(_pixels(tmp_path / "comparison.png"), EXPOSED_COLOR) > 100


def test_names_that_the_font_lacks_or_that_look_like_mathematics_do_not_warn(
    analysis: Analysis, tmp_path: Path
) -> None:
    odd = replace(analysis, model=replace(analysis.model, name="模型 $x$ \x1b {"))
    plot_timeline(odd, tmp_path / "timeline.png")
    plot_comparison(odd, tmp_path / "comparison.png")
    assert _pixels(tmp_path / "timeline.png").size > 0


def test_matplotlib_is_imported_when_a_picture_is_drawn_and_pyplot_never() -> None:
    code = (
        "import sys, pathlib, tempfile\n"
        "import placement_advisor.report.pictures.plots as plots\n"
        "import sample_analysis\n"
        "assert 'matplotlib' not in sys.modules\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    path = pathlib.Path(folder) / 'picture.png'\n"
        "    plots.plot_timeline(sample_analysis.sample(), path)\n"
        "assert 'matplotlib' in sys.modules\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    path = [*filter(None, sys.path), sample_analysis.__file__.rsplit("/", 1)[0]]
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{code}"],
        check=True,
    )
