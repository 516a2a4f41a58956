"""Products in float16 on A100 and H100, as predicted, beside what vidur measured.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/half_products.py RECORD

RECORD is a folder like `data/profiling/compute` of microsoft/vidur (MIT licence): for each card,
`mlp.csv` of language models, with times of PyTorch's linear layers in ms. That far rows cost
nothing on matrix units was seen on one half of the products, by chance; the other judges.
"""

import argparse
import csv
import random
from collections import defaultdict
from pathlib import Path
from statistics import mean, median

from placement_advisor.cost.gpu.kernel_times import kernel_time
from placement_advisor.graph.op import Arithmetic
from placement_advisor.machine.gpu_facts import gpu_facts

CARDS = {"a100": "A100-80GB-SXM4", "h100": "H100-SXM5"}
# From here on, as in `gpu_ops.py`, launches are a small part.
LEAST_MS = 0.3
NS_PER_MS = 1e6


def read_products(folder):
    """Return median times in ms of products, by m, k and n."""
    times = defaultdict(list)
    for path in folder.rglob("mlp.csv"):
        with path.open(encoding="utf-8", newline="") as text:
            for row in csv.DictReader(text):
                width, inner, heads = (
                    int(row[f"n_{x}"]) for x in ("embd", "expanded_embd", "head")
                )
                parts, m = int(row["num_tensor_parallel_workers"]), int(row["num_tokens"])
                projected = (heads + 2 * int(row["n_kv_head"])) * (width // heads)
                up = inner * (2 if row["use_gated_mlp"] == "True" else 1)
                for name, k, n in (
                    ("attn_pre_proj", width, projected // parts),
                    ("attn_post_proj", width // parts, width),
                    ("mlp_up_proj", width, up // parts),
                    ("mlp_down_proj", inner // parts, width),
                ):
                    times[m, k, n].append(float(row[f"time_stats.{name}.median"]))
    return {sizes: median(taken) for sizes, taken in times.items()}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("record", type=Path)
    record = arguments.parse_args().record
    for card, gpu in CARDS.items():
        measured_ms = read_products(record / card)
        sizes = [each for each, taken_ms in measured_ms.items() if taken_ms >= LEAST_MS]
        random.Random(0).shuffle(sizes)
        for half, chosen in (("seen", sizes[::2]), ("judged", sizes[1::2])):
            ratios = [
                kernel_time("linear", (1, *each), gpu_facts(gpu), Arithmetic.FLOAT16).time_ns
                / (measured_ms[each] * NS_PER_MS)
                for each in chosen
            ]
            error = mean(abs(ratio - 1) for ratio in ratios)
            print(
                f"{gpu}, {half}: {len(ratios)} products, {error:.1%} off, {mean(ratios) - 1:+.1%}"
            )


if __name__ == "__main__":
    main()
