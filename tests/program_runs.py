"""Runs other programs for tests."""

import os
import subprocess


def run_program(*words, env=(), **how):
    """Run a program to its end, well or not; ``env`` goes beside our environment."""
    around = {**os.environ, **dict(env)}
    return subprocess.run(words, env=around, capture_output=True, text=True, check=False, **how)
