from __future__ import annotations

import os
import pty
import subprocess
import sys

from command_runs import LAUNCH, Ran, run_here


def explain(*words: str) -> Ran:
    return run_here("explain", *words)


def test_a_finding_is_explained_as_it_is_written_where_no_terminal_reads() -> None:
    ran = explain("PA101")
    assert ran.code == 0
    assert ran.out.startswith("# PA101 backward-on-default-device\n")
    assert "tf.gradients" in ran.out
    assert "\x1b" not in ran.out


def test_without_a_code_all_are_listed() -> None:
    ran = explain()
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert len(lines) == 13
    assert lines[0] == "PA101  backward-on-default-device"


def test_an_unknown_code_is_an_error_with_the_list() -> None:
    ran = explain("PA1")
    assert (ran.code, ran.out) == (2, "")
    assert "no finding is called 'PA1'; there are PA101, PA102" in ran.err
    assert "advisor: hint: `advisor explain` lists them" in ran.err


def test_a_terminal_gets_the_page_laid_out() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        command = [sys.executable, "-c", LAUNCH, "explain", "PA203"]
        subprocess.run(command, stdout=theirs, check=True)
        os.close(theirs)
        text = terminal.read(1_000).decode()
    assert "PA203 idle-device" in text
    assert "# PA203" not in text
