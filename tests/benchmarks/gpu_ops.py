"""How far `cost/gpu/` misses what GPUs did, and where its constants come from.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/gpu_ops.py RECORD [OP...]
    ... gpu_ops.py --fit RECORD

RECORD is a folder with a table `GPU.csv.gz` for each GPU (columns op, dims, latency_us). *Own*: a
random fifth of the rows, never fitted to, with constants of the other rows of that GPU. *New*:
these other rows, with constants of all other chips. Rows that are mostly launch are left out.
`--fit` writes the constants that the package ships, and their errors. `--inner` leaves the fifth
alone, and holds out another one: it is for development.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

import numpy as np
from gpu_op_fit import OTHER_STARTS, STARTS, Rows, best_fit, fitted

from placement_advisor.cost.gpu import kernel_times
from placement_advisor.cost.gpu.clock import SLOT_WATTS
from placement_advisor.cost.gpu.kernel_times import (
    ALL_CHIPS,
    KernelBasis,
    constants_for,
    copy_bandwidth,
    generation,
    memory_group,
)
from placement_advisor.machine.gpu_facts import gpu_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

SEED = 25
HELD_OUT = 1 / 5
# Shorter rows are mostly the launch.
LEAST_LATENCIES, ENOUGH_US = 5, 300
# More tell a fit nothing new.
ROWS_OF_A_FIT, ROWS_OF_ONE_GPU_AMONG_OTHERS = 2_000, 500
# They tell the bandwidth; relu's is that of copies, which all other ops need.
STREAMS = ("relu", "add", "mul", "tanh", "gelu")
GROUPING = {"linear": generation, **dict.fromkeys(STREAMS, memory_group)}
# Whose clock an op has on cards that are not in the record.
CLOCK_OF = {"linear": "bmm"}
SHIPPED = Path(kernel_times.__file__).with_suffix(".toml")
HEADER = """\
# Constants of kernels on GPUs, by chip and op; what they mean stands at the classes of `cost/gpu/`.
# Written by `tests/benchmarks/gpu_ops.py --fit` from NeuSight's record of single ops (ASPLOS 2025,
# MIT licence; float32, PyTorch 2.1, CUDA 12.1, cuDNN 8.9): GP104 from P4, GP100 from P100-PCIe,
# TU104 from T4, GV100 from V100-PCIe, GA100 from A100-40GB-PCIe, its convolutions from
# A100-80GB-PCIe. Sections of several chips are for chips that are not in the record.
# `errors` are mean absolute errors: on held-out rows (fitted), on a chip left out (transferred).
"""


def read_record(folder: Path) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return by op and GPU the long rows: dims and, last, the latency in µs."""
    record: dict[str, dict[str, NDArray[np.float64]]] = {op: {} for op in STARTS}
    for path in sorted(folder.glob("*.csv.gz")):
        rows: dict[str, list[list[float]]] = {}
        with gzip.open(path, "rt", encoding="utf-8") as text:
            for row in csv.DictReader(text):
                numbers = [*row["dims"].split("x"), row["latency_us"]]
                rows.setdefault(row["op"], []).append([float(number) for number in numbers])
        for op, found in rows.items():
            table = np.array(found)
            least = min(LEAST_LATENCIES * table[:, -1].min(), ENOUGH_US)
            record[op][path.name.removesuffix(".csv.gz")] = table[table[:, -1] >= least]
    return record


def split(
    table: NDArray[np.float64], inner: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the rows to fit to, and those held out; with ``inner``, both are of the former."""
    shuffled = np.random.default_rng(SEED).permutation(table)
    held_out = round(HELD_OUT * len(table))
    if inner:
        return shuffled[2 * held_out :], shuffled[held_out : 2 * held_out]
    return shuffled[held_out:], shuffled[:held_out]


class Fits:
    """Constants fitted to some GPUs of a record, in the form of the package's file."""

    def __init__(self, tables: Mapping[str, Mapping[str, NDArray[np.float64]]]) -> None:
        self.tables = tables
        self.known: dict[str, dict[str, Any]] = {}

    def rows(self, op: str, name: str, table: NDArray[np.float64]) -> Rows:
        """Return rows of one op on one GPU."""
        gpu = gpu_facts(name)
        bandwidth = 0.0 if op in STREAMS else copy_bandwidth(gpu, self.known)
        return Rows(
            op=op, gpu=gpu, bandwidth=bandwidth, dims=table[:, :-1], latency_s=table[:, -1] / 1e6
        )

    def fit_shared(self, op: str, without: str | None = None) -> None:
        """Fit an op to all chips but one; and to those that are alike, if that matters to it."""
        names = [name for name in self.tables[op] if gpu_facts(name).chip != without]
        groups = {ALL_CHIPS: names}
        if op in GROUPING:
            for name in names:
                groups.setdefault(GROUPING[op](gpu_facts(name)), []).append(name)
        clock = self._slot_clock(op, names)
        for group, members in groups.items():
            parts = [
                self.rows(op, name, self.tables[op][name][:ROWS_OF_ONE_GPU_AMONG_OTHERS])
                for name in members
            ]
            start = self.known[ALL_CHIPS][op] if group != ALL_CHIPS else STARTS[op]
            self.known.setdefault(group, {})[op] = {**fitted(start, parts), **clock}

    def fit_own(self, op: str) -> None:
        """Fit an op to each GPU alone."""
        for name in self.tables[op]:
            self.known.setdefault(gpu_facts(name).chip, {})[op] = self._own(op, name, ROWS_OF_A_FIT)

    def _own(self, op: str, name: str, row_count: int) -> Mapping[str, Any]:
        """Return an op's constants on one GPU, from several beginnings."""
        rows = self.rows(op, name, self.tables[op][name][:row_count])
        tables = (self.known.get(ALL_CHIPS, {}), STARTS, OTHER_STARTS)
        return best_fit([table[op] for table in tables if op in table], rows)

    def _slot_clock(self, op: str, names: list[str]) -> Mapping[str, Any]:
        """Return what cards on the power of their slot keep of their clock, as these do alone.

        Fitted to all cards at once, the clock would have to explain more than power limits; so it
        would where rows are far from each other.
        """
        if "clock" not in STARTS[op]:
            return {}
        slow = [name for name in names if gpu_facts(name).power_watts <= SLOT_WATTS]
        op = CLOCK_OF.get(op, op)
        alone = [self._own(op, name, ROWS_OF_ONE_GPU_AMONG_OTHERS) for name in slow]
        clocks = [constants["clock"] for constants in alone]
        return {"clock": {key: geometric_mean([c[key] for c in clocks]) for key in clocks[0]}}

    def errors(self, op: str, name: str, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return by how much each row is missed, as a share of what it took."""
        rows = self.rows(op, name, table)
        constants = constants_for(op, rows.gpu, self.known)
        return np.abs(rows.predicted_s(constants) / rows.latency_s - 1)


def new_errors(
    op: str, tables: Mapping[str, Mapping[str, NDArray[np.float64]]]
) -> dict[str, NDArray[np.float64]]:
    """Return by GPU the errors of constants that were fitted to all other chips."""
    errors = {}
    for name, table in tables[op].items():
        fits = Fits(tables)
        for needed in dict.fromkeys(("relu", op)):
            fits.fit_shared(needed, without=gpu_facts(name).chip)
        errors[name] = fits.errors(op, name, table)
    return errors


def shown(errors: Mapping[str, NDArray[np.float64]]) -> str:
    """Return the mean over all rows, and that of each GPU, in %."""
    pooled = np.concatenate(list(errors.values())).mean()
    by_gpu = ", ".join(f"{name} {found.mean():.1%}" for name, found in errors.items())
    return f"{pooled:.1%} | {by_gpu}"


def main() -> None:
    """Print the errors, or fit and write."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("record", type=Path)
    arguments.add_argument("ops", nargs="*", default=list(STARTS))
    arguments.add_argument("--fit", action="store_true")
    arguments.add_argument("--inner", action="store_true")
    asked = arguments.parse_args()
    if asked.fit and (asked.inner or asked.ops != list(STARTS)):
        arguments.error("--fit takes all ops and all rows")
    parts = {
        op: {name: split(table, asked.inner) for name, table in tables.items()}
        for op, tables in read_record(asked.record).items()
    }
    tables = {op: {name: fit for name, (fit, _) in found.items()} for op, found in parts.items()}
    fits = Fits(tables)
    means: dict[str, dict[str, float]] = {}
    print("| op | own, pooled | by GPU | new, pooled | by GPU |\n|---|---|---|---|---|")
    for op in dict.fromkeys(("relu", *asked.ops)):
        fits.fit_shared(op)
        fits.fit_own(op)
        own = {name: fits.errors(op, name, held) for name, (_, held) in parts[op].items()}
        new = new_errors(op, tables)
        means[op] = {
            KernelBasis.FITTED: float(np.concatenate(list(own.values())).mean()),
            KernelBasis.TRANSFERRED: float(np.concatenate(list(new.values())).mean()),
        }
        print(f"| {op} | {shown(own)} | {shown(new)} |", flush=True)
    if asked.fit:
        SHIPPED.write_text(HEADER + as_toml({**fits.known, "errors": means}), encoding="utf-8")


def as_toml(table: Mapping[str, Any], path: str = "") -> str:
    """Return a table of tables of numbers as TOML, with four digits of each number."""
    numbers = {key: value for key, value in table.items() if isinstance(value, float)}
    text = "".join(f"{key} = {float(f'{value:.4g}')!r}\n" for key, value in numbers.items())
    text = f"\n[{path}]\n{text}" if numbers else ""
    for key, value in table.items():
        if key not in numbers:
            name = f'"{key}"' if " " in key else key
            text += as_toml(value, f"{path}.{name}" if path else name)
    return text


if __name__ == "__main__":
    main()
