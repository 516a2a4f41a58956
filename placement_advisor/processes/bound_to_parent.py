"""Becomes another program, which the kernel ends when the thread that started this one ends.

``python -m placement_advisor.processes.bound_to_parent PARENT PROGRAM…``, where PARENT is the
process id of whoever starts it. Between the start of a process and that of its program, a process
with threads of its own should run no Python; this does it afterwards.
"""

from __future__ import annotations

import os
import sys

from placement_advisor.processes.orphan_guard import die_with_parent


def main() -> None:
    """Become the program."""
    parent, *program = sys.argv[1:]
    die_with_parent()
    if os.getppid() != int(parent):
        sys.exit(1)  # It was gone before the kernel knew.
    os.execvp(program[0], program)


if __name__ == "__main__":
    main()
