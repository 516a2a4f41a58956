"""What it takes to predict a model on ever more devices, once it is traced.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/scale_effort.py [MODEL...]

Models are those of `public_models.py`, trained: ResNet-50, and a BERT of 24 layers. Each is
predicted on eight GPUs of one host, then on hosts of eight in three levels, up to 1,024 GPUs, all
families in one call. Printed are the seconds of processor time, and the most memory that this
process has held; the steps that the table has; and how much longer twice as many devices take, as a
mean over the last two doublings.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from placement_advisor import defaults
from placement_advisor.analysis.compare_hardware import compare_hardware
from placement_advisor.processes.children import preload
from placement_advisor.testbed.trial import SilentWatcher
from placement_advisor.tf.load.model_source import ModelSource

ONE_HOST = "8xH100-NVLink4"
HARDWARE = {
    8: ONE_HOST,
    256: f"2x(16x({ONE_HOST})-8xInfiniBand400)-8xInfiniBand200",
    512: f"4x(16x({ONE_HOST})-8xInfiniBand400)-8xInfiniBand200",
    1024: f"8x(16x({ONE_HOST})-8xInfiniBand400)-8xInfiniBand200",
}


class Clock(SilentWatcher):
    """Says when the simulation of each machine began, and how much memory was held by then."""

    def __init__(self) -> None:
        self.began: list[tuple[float, float]] = []

    def working(self, what: str, done: int, total: int, candidate: str = "") -> None:
        if what == "simulating":
            self.began.append(now())


def now() -> tuple[float, float]:
    """Return the processor time of this process in seconds, and the most GB that it has held."""
    held_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return time.process_time(), held_gb


def main() -> None:
    """Print a row for each model and machine."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", default=["ResNet50", "BERT24"])
    preload()
    for model in parser.parse_args().models:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.py"
            path.write_text(
                f"from public_models import compiled\nmodel, dataset = compiled({model!r})\n"
            )
            source = ModelSource(
                path=str(path),
                name=None,
                mode=None,
                batch_size=None,
                outputs=(),
                time_limit_s=defaults.TIME_LIMIT_S,
            )
            clock = Clock()
            compared = compare_hardware(source, list(HARDWARE.values()), None, clock)
        moments = [*clock.began, now()]
        taken_s = {}
        for devices, machine, (began_s, _), (ended_s, held_gb) in zip(
            HARDWARE, compared.machines, moments, moments[1:], strict=False
        ):
            taken_s[devices] = ended_s - began_s
            print(
                f"{model} on {devices} devices: {len(machine.steps)} steps in "
                f"{taken_s[devices]:.1f} s, {held_gb:.2f} GB",
                flush=True,
            )
        print(f"{model}: {(taken_s[1024] / taken_s[256]) ** 0.5:.2f} times for twice as many")


if __name__ == "__main__":
    main()
