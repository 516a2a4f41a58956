"""How far `cost/gpu/` misses what GPUs did, and where its constants come from.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/gpu_ops.py RECORD [OP...]
    ... gpu_ops.py --fit RECORD

RECORD is a folder with a table `GPU.csv.gz` for each GPU (columns op, dims, latency_us). *Own*: a
random fifth of the rows, never fitted to, with constants of the other rows of that GPU. *New*:
these other rows, with constants of all other chips. Rows that are mostly launch are left out.
GPUs of chips that the package has no constants of are not fitted to: they are held against those
that it ships; with `--shipped` all are. `--fit` fits to all, and writes the constants that the
package ships, with their errors. `--by-size` fits to the two thirds of the rows with the least
work, and judges the others, on the same GPU and on a new one; without the fifth as well.
`--repeats` prints how far the record's own rows of products differ that are alike.

Constants are a table of positive numbers, in parts. They are fitted by the Levenberg-Marquardt
method on their logarithms. Residuals are logarithms, then relative errors; large ones count less,
so that a few odd rows do not decide. What a record says nothing of stays where the fit begins.
"""

import csv
import gzip
import tomllib
from pathlib import Path
from statistics import geometric_mean
from typing import Annotated, NamedTuple

import numpy as np
import typer
from tables import table_head, table_row

from placement_advisor.cost.gpu import kernel_times
from placement_advisor.cost.gpu.kernel_times import ALL_CHIPS, KernelBasis
from placement_advisor.cost.gpu.kernels import SLOT_WATTS
from placement_advisor.machine.gpu_facts import GpuFacts, gpu_facts, gpus_with_facts
from placement_advisor.machine.presets import hardware_figures

# Residuals beyond this count linearly: first wide, so that a bad beginning is no dead end.
WIDTHS = (0.5, 0.15)
LAST_WIDTH = 0.1
STEPS_OF_A_WIDTH = 10
# How much leaving its beginning by a factor of e costs a constant, in mean error.
PRIOR = 0.01
# Constants that are shares.
UP_TO_ONE = ("peak_shares", "bandwidth_share")
# No launch took longer than the shortest rows: those of convolutions, on P100, took the longest.
LONGEST_LAUNCH_S = 1.08e-4

TILES = {"128x128": 0.85, "128x64": 0.85, "64x128": 0.8, "64x64": 0.75, "128x32": 0.6}
NARROW_TILES = {"32x128": 0.55, "64x32": 0.4, "32x64": 0.4, "32x32": 0.25}
CLOCK = {"sustained_flops_per_joule": 5e10, "sustained_after_s": 3e-3}


def _tiles(peak_shares, filling_k=20.0, single_tile=0.5, adding_up_s=3e-6):
    return {
        "peak_shares": peak_shares,
        "filling_k": filling_k,
        "single_tile": single_tile,
        "adding_up_s": adding_up_s,
    }


PRODUCTS = {
    "tiling": _tiles(TILES | NARROW_TILES, filling_k=15.0, single_tile=0.1),
    "scattered": 0.5,
    "straddling": 0.1,
    "writing": 0.4,
    "clock": CLOCK,
    "record_launch_s": 2e-5,
}
FAR = {
    "far_rows": 0.3,
    "far_rows_k": 4000.0,
    "far_rows_size": 8e12,
    "half_tiles": 0.1,
    "half_tiles_n": 3000.0,
}
# Of libraries with tiles of 128 columns alone, or of 128 rows as well: others cost as much.
WIDE = {"128x128": 0.85, "128x64": 0.85, "64x128": 0.45, "64x64": 0.45, "128x32": 0.45}
WIDE |= {"32x128": 0.22, "64x32": 0.22, "32x64": 0.22, "32x32": 0.12}
SQUARE = {"128x128": 0.9, "128x64": 0.45, "64x128": 0.45, "64x64": 0.22, "128x32": 0.22}
SQUARE |= {"32x128": 0.22, "64x32": 0.12, "32x64": 0.12, "32x32": 0.06}
ROWS = {"held": 1.5, "again": 0.1, "idle": 0.2, "row_elements": 50.0, "record_launch_s": 1.5e-5}
STREAM = {"bandwidth_share": 0.8, "record_launch_s": 1.5e-5}
STARTS = {
    "linear": PRODUCTS | FAR,
    "bmm": PRODUCTS,
    "conv": {
        "direct": _tiles({"128x128": 0.9, "128x64": 0.7, "64x64": 0.5, "128x32": 0.35}),
        "f2": _tiles({"64x64": 0.6, "128x32": 0.5, "32x32": 0.3}, adding_up_s=3e-4),
        "f4": _tiles({"128x128": 0.9, "128x64": 0.8, "64x64": 0.5, "32x32": 0.3}),
        "clock": CLOCK,
        "reading": 0.5,
        "f2_filter": 8.0,
        "f4_filter": 1.5,
        "f4_images": 1.0,
        "f4_start_s": 9e-5,
        "record_launch_s": 6e-5,
    },
    **dict.fromkeys(("add", "mul", "relu", "tanh", "gelu"), STREAM),
    "softmax": ROWS | {"held": 10.0, "again": 10.0, "idle": 10.0},
    "ln": ROWS | {"cache_reach": 1.0},
}

# Where a chip is far from the others, a fit that begins among them ends in a dead end.
OTHER_STARTS = {
    "linear": [
        STARTS["linear"]
        | {"far_rows": 0.5, "far_rows_k": 800.0, "half_tiles": 1.3}
        | {"clock": {"sustained_flops_per_joule": 4e10, "sustained_after_s": 2e-3}}
    ],
    "bmm": [
        PRODUCTS | {"tiling": PRODUCTS["tiling"] | {"peak_shares": shares}, "scattered": 1.0}
        for shares in (WIDE, SQUARE)
    ],
}

SEED = 25
HELD_OUT = 1 / 5
# Of a record's rows, those that tell of larger ones.
SMALLER = 2 / 3
# Rows of products are alike with each size within so much, and as many tiles of 64.
ALIKE, TILE = 0.1, 64
# Shorter rows are mostly the launch.
LEAST_LATENCIES, ENOUGH_US = 5, 300
# More tell a fit nothing new.
ROWS_OF_A_FIT, ROWS_OF_ONE_GPU_AMONG_OTHERS = 2_000, 500
# Of kernels, `within` holds as many.
NINE_IN_TEN = 0.9
# They tell the bandwidth; relu's is that of copies, which all other ops need.
STREAMS = ("relu", "add", "mul", "tanh", "gelu")
GROUPING = {"linear": kernel_times.generation, **dict.fromkeys(STREAMS, kernel_times.memory_group)}
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
# `within` are the factors that nine in ten of these rows are within, either way.
"""


def datasheet_of(name):
    """Return the datasheet that a name means: its own, a preset's, else the first alike."""
    known = gpus_with_facts()
    preset = hardware_figures()["devices"].get(name, {}).get("gpu")
    alike = (gpu for gpu in known if gpu.startswith(f"{name}-"))
    return name if name in known else preset or next(alike, name)


def read_record(folder):
    """Return by op and GPU the long rows: dims and, last, the latency in µs."""
    record = {op: {} for op in STARTS}
    for path in sorted(folder.glob("*.csv.gz")):
        rows = {}
        with gzip.open(path, "rt", encoding="utf-8") as text:
            for row in csv.DictReader(text):
                numbers = [*row["dims"].split("x"), row["latency_us"]]
                rows.setdefault(row["op"], []).append([float(number) for number in numbers])
        for op, found in rows.items():
            table = np.array(found)
            least = min(LEAST_LATENCIES * table[:, -1].min(), ENOUGH_US)
            gpu = datasheet_of(path.name.removesuffix(".csv.gz"))
            record[op][gpu] = table[table[:, -1] >= least]
    return record


def split(table):
    shuffled = np.random.default_rng(SEED).permutation(table)
    held_out = round(HELD_OUT * len(table))
    return shuffled[held_out:], shuffled[:held_out]


def split_by_size(table):
    """Return the rows with the least work, and the others, of those that may be fitted to."""
    rows, _ = split(table)
    work = rows[:, :-1].prod(axis=1)
    is_large = work > np.quantile(work, SMALLER)
    return rows[~is_large], rows[is_large]


class Rows(NamedTuple):
    """Some of a record's rows of one op on one GPU, with the bandwidth of its copies."""

    op: str
    gpu: GpuFacts
    bandwidth: float
    dims: np.ndarray
    latency_s: np.ndarray

    def predicted_s(self, constants):
        kernels_s = kernel_times.OPS[self.op](self.dims, self.gpu, constants, self.bandwidth)
        return kernels_s + constants["record_launch_s"]


def fitted(start, parts):
    """Return the constants that fit best; each part counts the same, however many rows it has."""
    beginning = np.array(_flat(start))
    weights = np.concatenate([np.full(len(p.latency_s), 1 / len(p.latency_s)) for p in parts])
    weights /= len(parts)
    latency_s = np.concatenate([part.latency_s for part in parts])

    def residuals(logs):
        constants = _table(start, beginning * np.exp(logs))
        return np.log(np.concatenate([p.predicted_s(constants) for p in parts]) / latency_s)

    logs = np.zeros(len(beginning))
    for width in WIDTHS:
        logs = _fit_with(residuals, logs, weights, width)
    logs = _fit_with(lambda at: np.expm1(residuals(at)), logs, weights, LAST_WIDTH)
    return _table(start, beginning * np.exp(logs))


def _fit_with(residuals, logs, weights, width):
    """Return the logarithms after at most `STEPS_OF_A_WIDTH` steps that each fit better."""

    def loss(found, at):
        return float(weights @ np.hypot(found, width) + PRIOR * (at**2).mean())

    damping, now = 1e-2, residuals(logs)
    small, pull = 1e-3, 2 * PRIOR / len(logs)
    for _ in range(STEPS_OF_A_WIDTH):
        slopes = [(residuals(logs + small * axis) - now) / small for axis in np.eye(len(logs))]
        jacobian = np.stack(slopes, axis=1)
        weighted = jacobian * (weights / np.hypot(now, width))[:, None]
        curvature = weighted.T @ jacobian + pull * np.eye(len(logs))
        gradient = weighted.T @ now + pull * logs
        for harder in 5.0 ** np.arange(9):
            damped = curvature + damping * harder * np.diag(np.diag(curvature))
            step = np.clip(np.linalg.solve(damped, -gradient), -0.5, 0.5)
            then = residuals(logs + step)
            gain = loss(now, logs) - loss(then, logs + step)
            if gain > 0:
                break
        else:
            return logs
        logs, now, damping = logs + step, then, max(damping * harder / 5, 1e-5)
        if gain < 1e-5:
            break
    return logs


def _flat(table):
    flat = []
    for value in table.values():
        flat += [value] if isinstance(value, float) else _flat(value)
    return flat


def _table(like, flat):
    """Return a table of these numbers; shares are at most 1."""
    numbers = iter(flat.tolist())

    def filled(table, is_share):
        found = {}
        for key, value in table.items():
            share = is_share or key in UP_TO_ONE
            if isinstance(value, float):
                limit = LONGEST_LAUNCH_S if key == "record_launch_s" else 1.0 if share else np.inf
                found[key] = min(next(numbers), limit)
            else:
                found[key] = filled(value, share)
        return found

    return filled(like, is_share=False)


class Fits:
    """Constants fitted to some GPUs of a record, in the form of the package's file."""

    def __init__(self, tables):
        self.tables = tables
        self.known = {}

    def rows(self, op, name, table):
        gpu = gpu_facts(name)
        bandwidth = 0.0 if op in STREAMS else kernel_times.copy_bandwidth(gpu, self.known)
        return Rows(op, gpu, bandwidth, table[:, :-1], table[:, -1] / 1e6)

    def fit_shared(self, op, without=None):
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

    def fit_own(self, op):
        for name in self.tables[op]:
            self.known.setdefault(gpu_facts(name).chip, {})[op] = self._own(op, name, ROWS_OF_A_FIT)

    def _own(self, op, name, row_count):
        """Return an op's constants on one GPU, from several beginnings."""
        rows = self.rows(op, name, self.tables[op][name][:row_count])
        of_all = self.known.get(ALL_CHIPS, {})
        starts = [of_all[op]] if op in of_all else []

        def error(constants):
            return mean_error(rows.predicted_s(constants) / rows.latency_s)

        starts += [STARTS[op], *OTHER_STARTS.get(op, [])]
        return min((fitted(start, [rows]) for start in starts), key=error)

    def _slot_clock(self, op, names):
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

    def ratios(self, op, name, table):
        """Return for each row what is predicted over what it took."""
        rows = self.rows(op, name, table)
        constants = kernel_times.constants_for(op, rows.gpu, self.known)
        return rows.predicted_s(constants) / rows.latency_s


def ratios_if_new(op, tables, judges):
    """Return by GPU the ratios of some rows by constants that were fitted to all other chips."""
    ratios = {}
    for name, table in judges.items():
        fits = Fits(tables)
        for needed in dict.fromkeys(("relu", op)):
            fits.fit_shared(needed, without=gpu_facts(name).chip)
        ratios[name] = fits.ratios(op, name, table)
    return ratios


def mean_error(ratios):
    return float(np.abs(ratios - 1).mean())


def within(ratios):
    """Return the factor that `NINE_IN_TEN` ratios are within, either way."""
    return float(np.exp(np.quantile(np.abs(np.log(ratios)), NINE_IN_TEN)))


def pooled(ratios):
    return np.concatenate(list(ratios.values()))


def shown(ratios):
    """Return error and factor over all rows, and the error of each GPU."""
    by_gpu = ", ".join(f"{name} {mean_error(found):.1%}" for name, found in ratios.items())
    return f"{mean_error(pooled(ratios)):.1%} | {within(pooled(ratios)):.2f} | {by_gpu}"


def print_shipped(record, ops):
    """Print how far constants that the package ships miss GPUs that nothing is fitted to here."""
    print(f"\n{table_head('op | GPU | shipped constants | rows | error | nine in ten within')}")
    fits = Fits(record)
    fits.known = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))
    for op in ops:
        for name, table in record[op].items():
            is_known = op in fits.known.get(gpu_facts(name).chip, {})
            basis = KernelBasis.FITTED if is_known else KernelBasis.TRANSFERRED
            found = fits.ratios(op, name, table)
            told = f"{mean_error(found):.1%}", f"{within(found):.2f}"
            print(table_row(op, name, basis, len(found), *told))


def print_repeats(record):
    """Print by which factors rows of products differ, in time for a flop, that are alike."""
    print(table_head("op | GPU | pairs | median | nine in ten"))
    for op in ("linear", "bmm"):
        for name, table in record[op].items():
            sizes = np.log(table[:, :-1])
            pace = np.log(table[:, -1]) - sizes.sum(axis=1)
            tiles = np.ceil(table[:, [1, 3]] / TILE)
            apart = []
            for row in range(len(table)):
                near = (np.abs(sizes[:row] - sizes[row]) < ALIKE).all(axis=1)
                near &= (tiles[:row] == tiles[row]).all(axis=1)
                apart += np.abs(pace[:row][near] - pace[row]).tolist()
            median, most = np.exp(np.quantile(apart, (0.5, NINE_IN_TEN)))
            print(table_row(op, name, len(apart), f"{median:.2f}", f"{most:.2f}"))


def main(
    record: Path,
    ops: Annotated[list[str] | None, typer.Argument()] = None,
    fit: bool = False,
    by_size: bool = False,
    repeats: bool = False,
    shipped: bool = False,
):
    if fit and (by_size or shipped or ops):
        raise typer.BadParameter("--fit takes all ops and all rows")
    ops, tables = ops or list(STARTS), read_record(record)
    if repeats:
        print_repeats(tables)
    elif fit:
        fits, told = print_fits(tables, ops, split)
        SHIPPED.write_text(HEADER + as_toml({**fits.known, **told}), encoding="utf-8")
    else:
        known = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))
        apart = {op: {} for op in tables}
        for op, found in tables.items():
            for name in list(found):
                if shipped or gpu_facts(name).chip not in known:
                    apart[op][name] = found.pop(name)
        if any(tables.values()):
            print_fits(tables, ops, split_by_size if by_size else split)
        print_shipped(apart, ops)


def print_fits(record, ops, parted):
    """Fit, print how far the fits are off, and return both; ``parted`` holds rows out."""
    parts = {
        op: {name: parted(table) for name, table in found.items()} for op, found in record.items()
    }
    tables = {op: {name: fit for name, (fit, _) in found.items()} for op, found in parts.items()}
    fits = Fits(tables)
    told = {"errors": {}, "within": {}}
    within_ = "nine in ten within | by GPU"
    print(table_head(f"op | own | {within_} | new | {within_}"))
    for op in dict.fromkeys(("relu", *ops)):
        fits.fit_shared(op)
        fits.fit_own(op)
        held = {name: rows for name, (_, rows) in parts[op].items()}
        own = {name: fits.ratios(op, name, rows) for name, rows in held.items()}
        new = ratios_if_new(op, tables, tables[op] if parted is split else held)
        by_basis = {KernelBasis.FITTED: own, KernelBasis.TRANSFERRED: new}
        for figure, of in (("errors", mean_error), ("within", within)):
            told[figure][op] = {basis: of(pooled(found)) for basis, found in by_basis.items()}
        print(table_row(op, *map(shown, by_basis.values())), flush=True)
    return fits, told


def as_toml(table, path=""):
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
    typer.run(main)
