"""What a picture shows: its texts with their places, and how many pixels have a colour."""

from itertools import combinations
from unittest.mock import patch

import matplotlib.colors
import matplotlib.image
import numpy as np
from matplotlib.text import Text


def texts(figure):
    """Return all text that a picture shows, with the pixels that it takes."""
    drawn = []
    draw = Text.draw

    def record(text, renderer):
        if text.get_visible() and text.get_text():
            drawn.append(text)
        draw(text, renderer)

    with patch.object(Text, "draw", record):
        figure.draw_without_rendering()
    return [(text.get_text(), text.get_window_extent()) for text in drawn]


def unreadable(figure):
    """Return the texts that lie on one another, and those that are cut off."""
    found = texts(figure)
    width, height = figure.canvas.get_width_height()
    cut_off = [
        (text,)
        for text, box in found
        if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height
    ]
    on_others = [
        (one, other)
        for (one, box), (other, other_box) in combinations(found, 2)
        if box.overlaps(other_box)
    ]
    return cut_off + on_others


def words(figure):
    return [text for text, _ in texts(figure)]


def pixels(path, top=0):
    """Return the picture in a file, from a row of pixels on."""
    return np.asarray(matplotlib.image.imread(path))[top:, :, :3]


def count(pixels, color):
    return int((np.abs(pixels - matplotlib.colors.to_rgb(color)).max(axis=2) < 0.02).sum())
