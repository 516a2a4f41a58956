"""Fits the constants of `cost/gpu/kernel_times.toml` to rows of a record.

Constants are a table of positive numbers, in parts. They are fitted by the Levenberg-Marquardt
method on their logarithms. Residuals are logarithms, then relative errors; large ones count less,
so that a few odd rows do not decide. What a record says nothing of stays where the fit begins.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement_advisor.cost.gpu.kernel_times import OPS
from placement_advisor.machine.gpu_facts import GpuFacts

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some of a record's rows of one op on one GPU, with the bandwidth of its copies."""

    op: str
    gpu: GpuFacts
    bandwidth: float
    dims: NDArray[np.float64]
    latency_s: NDArray[np.float64]

    def predicted_s(self, constants):
        kernels_s = OPS[self.op](self.dims, self.gpu, constants, self.bandwidth)
        return kernels_s + constants["record_launch_s"]


def best_fit(starts, rows):
    """Return the constants that fit best to one GPU, of fits with several beginnings."""

    def error(constants):
        return float(np.abs(rows.predicted_s(constants) / rows.latency_s - 1).mean())

    return min((fitted(start, [rows]) for start in starts), key=error)


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
