"""Healthy analyses over a line of 10 Mbit/s whose steps take a minute: nothing may be called lost.

A case is a real `advisor analyze --hosts` between two hosts of the lab, where control and data go
over the same cable. Its towers exchange 70 MB a step. It must end with a report in which no host is
lost and no candidate failed. Cases go on side by side, since they mostly wait.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from campaign import run_campaign
from network_lab.lab import lab
from network_lab.two_hosts import TwoHosts

RATE_BIT_PER_S = 10e6
AT_ONCE = 5
# A minute is meant; a little less is as good a test of what waits for 8 s.
LEAST_STEP_S = 50.0
_LIMIT_S = 3_600.0
# Each tower gives 8,000 samples of 1,100 numbers: 35 MB there, and 35 MB of gradients back.
_MODEL = """
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
left, right = keras.Input((16,), 8_000, name="left"), keras.Input((16,), 8_000, name="right")
towers = [keras.layers.Dense(1_100, activation="relu")(side) for side in (left, right)]
model = keras.Model([left, right], keras.layers.Dot(axes=1)(towers))
model.compile(optimizer="sgd", loss="mean_squared_error")
values = np.random.default_rng(7).normal(size=(8_000, 16)).astype(np.float32)
dataset = tf.data.Dataset.from_tensor_slices(((values, values[::-1]), values[:, :1])).batch(8_000)
"""
_COMMAND = ("-P", "-m", "placement_advisor.cli.app", "analyze")
_FEW = ("--candidates", "towers", "--rounds", "2", "--steps", "1", "--effort", "0.01")


def cases() -> list[str]:
    """Return groups of cases that go on side by side."""
    return [f"{AT_ONCE} at once, group {number}" for number in (1, 2)]


def examine(_: str) -> dict[str, Any]:
    """Run the analyses of a group."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return {"analyses": list(pool.map(lambda _: _analyzed(), range(AT_ONCE)))}


def _analyzed() -> dict[str, Any]:
    """Run one and return how it ended, and what of that is broken."""
    begun_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="health-") as name,
        lab(hosts=2, rate_bit_per_s=RATE_BIT_PER_S) as network,
    ):
        folder = Path(name)
        (folder / "model.py").write_text(_MODEL)
        environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        hosts = TwoHosts(network, folder, environment)
        words = (*_COMMAND, str(folder / "model.py"), "-o", str(folder / "out"), *_FEW)
        with (folder / "said").open("w") as said:
            command = hosts.run(*words, *hosts.options, stdout=subprocess.DEVNULL, stderr=said)
            try:
                code: int | None = command.wait(_LIMIT_S)
            except subprocess.TimeoutExpired:
                code = None
        text = (folder / "said").read_text()
        broken = [] if code == 0 else [f"ends with {code}"]
        broken += [line for line in text.splitlines() if "lost" in line or "error" in line]
        step_s = None
        if code == 0:
            analysis = json.loads((folder / "out" / "analysis.json").read_text())
            for candidate in analysis["candidates"]:
                if candidate["failure"] is not None:
                    broken.append(f"{candidate['name']}: {candidate['failure']}")
                elif candidate["name"] == "towers":
                    step_s = candidate["measured"]["step_ns"]["median"] / 1e9
            if step_s is None or step_s < LEAST_STEP_S:
                broken.append(f"a step takes {step_s} s")
        took_s = round(time.monotonic() - begun_s)
        said = text[-2_000:] if broken else ""
        return {"code": code, "step_s": step_s, "took_s": took_s, "broken": broken, "said": said}


def table(results: list[dict[str, Any]]) -> str:
    """Return a row for each analysis."""
    rows = ["| group | a step of towers | whole analysis | false alarms |", "|---|---|---|---|"]
    for result in results:
        for each in result["analyses"]:
            step = "–" if each["step_s"] is None else f"{each['step_s']:.0f} s"
            broken = "; ".join(each["broken"]) or "none"
            rows.append(f"| {result['case']} | {step} | {each['took_s']} s | {broken} |")
    return "\n".join(rows)


if __name__ == "__main__":
    run_campaign("host_health", cases(), examine, table)
