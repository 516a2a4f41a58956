"""What alternating a chain between two devices costs, by the size of its tensors.

Predicted and measured as `fidelity.py` does it. The penalty is what a step of the alternating
placement takes longer than one of `single`, in multiples of the latter.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from paired_runs import predicted_and_run

from placement_advisor.processes.children import preload

_MODEL = Path(__file__).with_name("chain_model.py")
_SIZES_BYTES = (4 << 10, 4 << 20, 64 << 20)
_ROUNDS = 10


def main() -> None:
    """Print a row for each size; each has a process of its own, whose environment it reads."""
    if len(sys.argv) > 1:
        _measure(int(sys.argv[1]))
        return
    for size_bytes in _SIZES_BYTES:
        environment = {**os.environ, "CHAIN_BYTES": str(size_bytes)}
        command = [sys.executable, __file__, str(size_bytes)]
        subprocess.run(command, check=True, env=environment)


def _measure(size_bytes: int) -> None:
    preload()
    model = predicted_and_run(_MODEL, "infer", _ROUNDS, only="alternating")
    assert model is not None
    (pair,) = model.pairs
    predicted, measured = pair.predicted - 1, pair.measured - 1
    print(
        f"{size_bytes:>10,} bytes: single {model.single_ns / 1e6:8.2f} ms, penalty predicted "
        f"{predicted:6.3f}, measured {measured:6.3f} "
        f"({pair.low - 1:.3f} to {pair.high - 1:.3f}), error {predicted / measured - 1:+.1%}",
        flush=True,
    )


if __name__ == "__main__":
    main()
