from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

from rich.console import Console

from placement_advisor.analysis.progress import TimeAhead
from placement_advisor.cli.console import progress
from placement_advisor.report import progress as progress_module

if TYPE_CHECKING:
    import pytest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_each_stage_is_one_plain_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress(quiet=False) as watcher:
        watcher.working("timing", 0, 3)
        watcher.working("timing", 1, 3)
        watcher.note("model.py: model")
        watcher.working("profiling", 0, 1)
    assert stderr.getvalue() == "advisor: timing\nadvisor: model.py: model\nadvisor: profiling\n"


def test_quiet_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress(quiet=True) as watcher:
        watcher.working("timing", 0, 3)
        watcher.note("model.py: model")
    assert stderr.getvalue() == ""


def test_a_terminal_shows_how_far_it_is_and_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    clock = iter([10.0, 14.0])
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress(quiet=False) as watcher:
        watcher.working("timing", 0, 6)
        watcher.working("timing", 2, 6, "towers")
    # Two of six took 4 s.
    # A bar of 20, two sixths of it full.
    assert f"{'━' * 6}\x1b[0m\x1b[91m╸" in stderr.getvalue()
    assert "timing 3/6, towers, about 8 s left" in stderr.getvalue()


def test_a_line_says_what_is_left_in_all_from_there_on(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress(quiet=False) as watcher:
        watcher.expect(TimeAhead(stage_s=20, later_s=25))
        watcher.working("tracing", 0, 1)
        watcher.expect(TimeAhead(stage_s=10, later_s=15, doubt_s=95))
        watcher.working("timing rounds", 0, 15)
        watcher.working("timing rounds", 1, 15)
    assert stderr.getvalue() == (
        "advisor: tracing, about 45 s left\n"
        "advisor: timing rounds, about 25 s left, 2 min if in doubt\n"
    )


def test_on_a_busy_machine_what_is_left_is_said_to_be_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress(quiet=False) as watcher:
        watcher.expect(TimeAhead(stage_s=20, later_s=25, is_busy=True))
        watcher.working("tracing", 0, 1)
    assert stderr.getvalue() == "advisor: tracing, about 45 s left, longer while other work runs\n"


def test_a_terminal_counts_down_what_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    now = [0.0]
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with progress(quiet=False) as watcher:
        watcher.expect(TimeAhead(stage_s=50, later_s=30))
        watcher.working("searching placements", 0, 1)
        assert line_of(watcher) == "searching placements, about 80 s left"
        now[0] = 41.0
        # 41 s of 81 have passed.
        assert line_of(watcher) == f"{'━' * 10:20} searching placements, about 40 s left"
        # What is counted beside it has its own place no longer.
        watcher.working("profiling", 2, 6, "towers")
        assert line_of(watcher) == f"{'━' * 10:20} profiling 3/6, towers, about 40 s left"


def line_of(watcher: object) -> str:
    assert isinstance(watcher, progress_module.LiveLine)
    console = Console(width=80, color_system=None)
    with console.capture() as shown:
        console.print(watcher)
    return shown.get().strip()


def test_names_from_models_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress(quiet=False) as watcher:
        watcher.working("loading [bold]model.py[/none]", 0, 1)
    assert "loading [bold]model.py[/none]" in stderr.getvalue()


def test_a_note_stays_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress(quiet=False) as watcher:
        watcher.note("model.py: layers [3], batch 32 assumed")
    assert "model.py: layers [3], batch 32 assumed\n" in stderr.getvalue()
