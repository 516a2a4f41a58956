"""Colours of the page and of pictures: read by everybody, on screens and on paper."""

import re
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from placement_advisor.graph import exchange
from placement_advisor.report import html_file

STATIC = Path(html_file.__file__).parent / "tensorboard" / "static"
LIGHT_TEXT, DARK_TEXT = re.findall(
    r":root(?:\.dark)? \{(.*?)\}", (STATIC / "style.css").read_text(), re.DOTALL
)[:2]
LIGHT = dict(re.findall(r"--([\w-]+): (#\w{6});", LIGHT_TEXT))
MODES = {"light": LIGHT, "dark": LIGHT | dict(re.findall(r"--([\w-]+): (#\w{6});", DARK_TEXT))}
ACTIVITIES = ("compute", "copy", "launch", "idle", "no-profile")
# Linear RGB as the colour-blind see it, at full severity (Machado, Oliveira & Fernandes 2009).
SEEN = {
    "all": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.28, 0.673, 0.047], [-0.012, 0.043, 0.969]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(color):
    parts = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def luminance(color):
    return float(linear(color) @ TO_XYZ[1])


def contrast(one, other):
    """Ratio of WCAG 2.2."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(color, seen):
    rgb = np.clip(np.array(SEEN[seen]) @ linear(color), 0, 1)
    x, y, z = np.cbrt(np.maximum(TO_XYZ @ rgb / [0.9505, 1, 1.089], 1e-3))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def assert_apart(colors, least):
    apart = {(a, b): np.linalg.norm(colors[a] - colors[b]) for a, b in combinations(colors, 2)}
    assert min(apart.values()) >= least, min(apart, key=apart.__getitem__)


@pytest.mark.parametrize("mode", MODES)
def test_text_passes_wcag_aa_and_so_does_what_is_drawn(mode):
    colors = MODES[mode]
    on = [(text, back) for text in ("ink", "faint", "accent") for back in ("background", "band")]
    on += [("on-compute", "compute"), ("on-copy", "copy")]
    on += [("on-device", name) for name in colors if name.startswith(("device-", "no-device"))]
    assert min((contrast(colors[a], colors[b]), a, b) for a, b in on) >= (4.5,)
    drawn = (*ACTIVITIES, "flow", "focus")
    assert min((contrast(colors[name], colors["background"]), name) for name in drawn) >= (3,)


DEVICES = (*(name for name in LIGHT if re.match(r"device-\d", name)), "compute", "copy")


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize(
    ("mode", "names"), [*((mode, ACTIVITIES) for mode in MODES), ("light", DEVICES)]
)
def test_what_goes_on_and_where_is_told_apart_by_the_colour_blind(mode, names, seen):
    assert_apart({name: lab(MODES[mode][name], seen) for name in names}, 15)


@pytest.mark.parametrize("mode", MODES)
def test_what_goes_on_is_told_apart_in_grey(mode):
    """What lies side by side in a bar: compute, waits for copies, idle, launches."""
    lightness = sorted((lab(MODES[mode][name], "all")[0], name) for name in ACTIVITIES[:4])
    steps = [(b[0] - a[0], a[1], b[1]) for a, b in pairwise(lightness)]
    assert min(steps) >= (8,)


def test_no_colour_is_like_another_that_has_another_meaning():
    """A just noticeable difference is 2; ten of them are told apart from picture to picture."""
    assert_apart({name: lab(LIGHT[name], "all") for name in {*ACTIVITIES, *DEVICES}}, 20)


def test_flowcharts_have_the_colours_of_the_page():
    count = len(exchange.DEVICE_COLORS)
    assert list(exchange.DEVICE_COLORS) == [LIGHT[f"device-{n}"] for n in range(count)]
    assert f"DEVICE_COLORS = {count};" in (STATIC / "theme.js").read_text()
