import io
import sys
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

import pytest
from rich.console import Console

from placement_advisor.analysis.progress import TimeAhead
from placement_advisor.cli.console import progress
from placement_advisor.report import progress as progress_module


@pytest.fixture
def stderr(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    return io.StringIO()


@pytest.fixture
def terminal(stderr, monkeypatch):
    monkeypatch.setattr(stderr, "isatty", lambda: True, raising=False)
    return stderr


@pytest.fixture
def now(monkeypatch):
    """A clock that a test sets."""
    time_s = [0.0]
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: time_s[0]))
    return time_s


@contextmanager
def watching(stream):
    with mock.patch.object(sys, "stderr", stream), progress(quiet=False) as watcher:
        yield watcher


def test_a_terminal_shows_how_far_it_is_and_how_long_it_takes_and_notes_stay(terminal, now):
    with watching(terminal) as watcher:
        watcher.note("model.py: layers [3], batch 32 assumed")
        watcher.working("loading [bold]model.py[/none]", 0, 1)  # No markup.
    with watching(terminal) as watcher:
        watcher.working("timing", 0, 6)
        now[0] = 4.0
        watcher.working("timing", 2, 6, "towers")
    assert "model.py: layers [3], batch 32 assumed\n" in terminal.getvalue()
    assert "loading [bold]model.py[/none]" in terminal.getvalue()
    # Two of six took 4 s.
    # A bar of 20, two sixths of it full.
    assert f"{'━' * 6}\x1b[0m\x1b[91m╸" in terminal.getvalue()
    assert "timing 3/6, towers, about 8 s left" in terminal.getvalue()


def test_without_a_terminal_each_stage_is_one_line_with_what_is_left_from_there_on(stderr):
    with watching(stderr) as watcher:
        watcher.working("loading", 0, 1)
        watcher.note("model.py: model")
        watcher.expect(TimeAhead(stage_s=20, later_s=25))
        watcher.working("tracing", 0, 1)
        watcher.expect(TimeAhead(stage_s=105, later_s=15, is_most=True))
        watcher.working("timing rounds", 0, 15)
        watcher.working("timing rounds", 1, 15)
        watcher.expect(TimeAhead(stage_s=20, later_s=25, is_busy=True))
        watcher.working("profiling", 0, 1)
    assert stderr.getvalue() == (
        "advisor: loading\nadvisor: model.py: model\n"
        "advisor: tracing, about 45 s left\n"
        "advisor: timing rounds, up to 2 min left\n"
        "advisor: profiling, about 45 s left, longer while other work runs\n"
    )


def test_a_terminal_counts_down_what_is_expected(terminal, now):
    with watching(terminal) as watcher:

        def line():
            console = Console(width=80, color_system=None)
            with console.capture() as shown:
                console.print(watcher)
            return shown.get().strip()

        watcher.expect(TimeAhead(stage_s=50, later_s=30))
        watcher.working("searching placements", 0, 1)
        assert line() == "searching placements, about 80 s left"
        now[0] = 41.0
        # 41 s of 81 have passed.
        assert line() == f"{'━' * 10:20} searching placements, about 40 s left"
        # What is counted beside it has its own place no longer.
        watcher.working("profiling", 2, 6, "towers")
        assert line() == f"{'━' * 10:20} profiling 3/6, towers, about 40 s left"
