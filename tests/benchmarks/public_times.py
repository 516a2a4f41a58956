"""Ops, collectives and steps on several hosts, as predicted, beside what projects measured.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/public_times.py RECORD...

Each RECORD is a folder of one, known by its files. A random half of DeepBench's products and
convolutions told which kernels price them, and two constants (`PLAIN_SINGLE_TILE`,
`STRIDED_BY_INPUT`). Nothing else is fitted to them.

- `results/train` of baidu-research/DeepBench (Apache-2.0): float32 products, convolutions and
  recurrent layers of cuDNN 5 to 7, forward and backward, and all-reduces of NCCL 2 in one host.
  Those of MPI, and of several hosts, are left out. A recurrent layer is priced as TensorFlow's op
  for it.
- `data/profiling/compute` of microsoft/vidur (MIT): for A100 and H100, PyTorch's linear layers in
  float16. That far rows cost nothing on matrix units was seen on one half of the products, by
  chance; the other judges.
- `data/profiling/network` of microsoft/vidur (MIT): all-reduces, and copies from the first GPU to
  the second. Left out are hosts whose network the record does not name, and files that another
  one's repeat.
- `simulator/traces` of petuum/adaptdl, branch osdi21-artifact (Apache-2.0): steps on hosts with
  four T4 and a network of 50 Gbit/s. How many times as long they take as on one GPU is predicted,
  for placements with as many GPUs on each host; gradients go as they are ready.
"""

import csv
import random
import re
import zipfile
from collections import defaultdict, namedtuple
from functools import cache
from pathlib import Path
from statistics import mean, median, quantiles
from xml.etree import ElementTree

import numpy as np
import typer
from gpu_scaling import traced
from simulated_splits import simulated
from tables import table_head, table_row

from placement_advisor.candidates.batch_split import data_parallel
from placement_advisor.cost.collectives import ALL_DEVICES, collective_costs, ring_of_devices
from placement_advisor.cost.gpu.kernel_times import kernel_time
from placement_advisor.cost.gpu.kernels import FFT_FILTER
from placement_advisor.cost.roofline import Roof
from placement_advisor.graph.op import Arithmetic, Kernel, KernelFamily, Op
from placement_advisor.graph.op_work.signature import Signature, TensorSpec
from placement_advisor.graph.op_work.work import work_of
from placement_advisor.machine.gpu_facts import gpu_facts
from placement_advisor.machine.hierarchy import read_machine
from placement_advisor.machine.presets import hardware_figures, read_hardware
from placement_advisor.units import NS_PER_MS, NS_PER_S

# Of the halves of DeepBench.
SEED = 52
# Classes of sizes, in bytes: up to each.
SIZES = {"64 kB": 1 << 16, "4 MB": 1 << 22, "1 GB": 1 << 30}

# A row of a record and what is predicted for it; rows are told together by the texts.
Timing = namedtuple("Timing", "op machine kind measured_ns predicted_ns")


def sized(size_bytes):
    return f"up to {next(text for text, most in SIZES.items() if size_bytes <= most)}"


def all_reduce_ns(machine, size_bytes):
    op = Op(name="reduce", kind="AllReduce", output_bytes=(size_bytes,))
    rings = ring_of_devices(machine.host), *machine.first_levels(machine.hosts)
    return collective_costs([op], [], rings).time_ns(op.name)


CARDS = {"1080Ti": "GTX1080Ti", "P100": "P100-PCIe", "V100": "V100", "T4": "T4"}
_GATES = {"Vanilla": (1, "rnn_relu"), "LSTM": (4, "lstm"), "GRU": (3, "gru")}
NUMBER = re.compile(r"[\d.]")
_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def sheet(path):
    """Yield the rows of the first sheet of a workbook: texts by column."""
    with zipfile.ZipFile(path) as book:
        texts, rows = (
            ElementTree.fromstring(book.read(f"xl/{name}.xml"))
            for name in ("sharedStrings", "worksheets/sheet1")
        )
    known = ["".join(text.itertext()) for text in texts]
    for row in rows.iter(f"{_MAIN}row"):
        cells = {cell.attrib["r"].rstrip("0123456789"): cell for cell in row}
        values = {column: cell.findtext(f"{_MAIN}v") for column, cell in cells.items()}
        yield {
            column: known[int(value)] if cells[column].get("t") == "s" else value
            for column, value in values.items()
            if value is not None
        }


def deepbench(record):
    for name, card in CARDS.items():
        yield from _of_card(record / f"DeepBench_NV_{name}.xlsx", card)


def _of_card(path, card):
    device = read_hardware(card).devices[0]
    roof, section, names = Roof(device), "", {}
    for cells in sheet(path):
        section = cells.get("A", section) if cells.get("A", "0")[0].isalpha() else section
        if not NUMBER.match(cells.get("C", "")):
            names = {word.split()[0].lower(): column for column, word in cells.items()}
        elif section == "All-Reduce":
            if cells.get("J", "").startswith("NCCL") and "E" not in cells and "G" in cells:
                machine, size_bytes = f"{cells['D']}x{card}", 4 * int(cells["C"])
                predicted_ns = all_reduce_ns(read_machine(machine), size_bytes)
                measured_ns = float(cells["G"]) * NS_PER_MS
                yield Timing("all_reduce", machine, sized(size_bytes), measured_ns, predicted_ns)
        else:
            for op, kind, times, work in _ops(section, names, cells):
                taken = [cells.get(column, "") for column in times]
                # Where a card has no time, some rows say so in words.
                if all(NUMBER.match(word) for word in taken):
                    measured_ns = sum(map(float, taken)) * NS_PER_MS
                    predicted_ns = device.busy_ns(round(roof.time_ns(work)))
                    yield Timing(op, card, kind, measured_ns, predicted_ns)


def _ops(section, names, cells):
    """Yield for each op of a row what it is, which way it goes, the columns of its time, itself."""
    op = Op(name="op", kind="")
    if section.startswith("Dense"):
        # Column by column, as cuBLAS has matrices: the product that TensorFlow has is transposed.
        m, n, k = (int(cells[column]) for column in "CDE")
        family = KernelFamily.LINEAR if cells["F"] == "T" else KernelFamily.BMM
        product = op._replace(kernel=Kernel(family, (1, n, k, m)))
        yield "product", cells["F"] + cells["G"], "I", product
    elif section == "Convolution":
        sizes = {name: int(float(cells[column])) for name, column in names.items() if column < "N"}
        n, c, k, r, s, h, w = (sizes[name] for name in "nckrshw")
        strides = sizes["vertical"], sizes["horizontal"]
        results = (
            (h + 2 * sizes["pad_h"] - r) // strides[0] + 1,
            (w + 2 * sizes["pad_w"] - s) // strides[1] + 1,
        )
        dims = n, c, k, r, s, h, w, *results, max(strides)
        kind = f"{f'{r}x{s}' if r == s < FFT_FILTER else 'larger'}, stride {max(strides)}"
        families = KernelFamily.CONV, KernelFamily.CONV_BY_INPUT, KernelFamily.CONV_BY_FILTER
        for family, column in zip(families, "NOP", strict=True):
            yield family, kind, column, op._replace(kernel=Kernel(family, dims))
    elif section.startswith("Recurrent"):
        units, batch, steps = (int(cells[column]) for column in "CDE")
        gates, mode = _GATES[section.rpartition(" ")[2]]
        shapes = (steps, batch, units), (1, batch, units), (gates * units * (units + 2),)
        flow, state, weights = (TensorSpec(shape, "float32", 4) for shape in shapes)
        # The layer takes its input as it is (`skip_input`).
        inputs = flow._replace(shape=(steps, batch, 0)), state, state, weights
        attributes = {"rnn_mode": mode, "direction": "unidirectional"}
        for way, kind, more, outputs, times in (
            ("forward", "CudnnRNNV3", (), (flow,), "G"),
            ("backward", "CudnnRNNBackpropV3", (flow, flow), (flow, weights), "HI"),
        ):
            signature = Signature(kind, inputs + more, outputs, attributes.get, lambda _: None)
            work = work_of(signature)
            sized_op = op._replace(flops=work.flops, bytes_accessed=work.bytes_accessed)
            yield mode, way, times, sized_op._replace(kind=kind)


# What each machine of the record is, of so many GPUs a host, and what joins its hosts.
MACHINES = {
    "a100_dgx": ("{}xA100", "{}xInfiniBand200"),
    "a100_pairwise_nvlink": ("{}xA100-PCIe-NVLink", None),
    "a40_pairwise_nvlink": ("{}xA6000-NVLink", None),
    "h100_dgx": ("{}xH100", "{}xInfiniBand400"),
    "h100_pairwise_nvlink": ("{}xH100-PCIe-NVLink", None),
}


def vidur(record):
    """Yield all-reduces of all GPUs, and copies from the first to the second."""
    for kind in ("all_reduce", "send_recv"):
        seen = {}
        for name, (host, network) in MACHINES.items():
            path = record / name / f"{kind}.csv"
            if not path.exists() or seen.setdefault(path.read_bytes(), name) != name:
                continue
            for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
                gpus, of_host, size_bytes = (
                    int(row[column]) for column in ("num_workers", "devices_per_node", "size")
                )
                words = host.format(of_host)
                if gpus > of_host and network is not None:
                    words = f"{gpus // of_host}x({words})-{network.format(of_host)}"
                if gpus == of_host or network is not None:
                    measured_ns = float(row[f"time_stats.{kind}.median"]) * NS_PER_MS
                    predicted_ns = _collective_ns(kind, words, size_bytes)
                    yield Timing(kind, words, sized(size_bytes), measured_ns, predicted_ns)


_machine = cache(read_machine)


def _collective_ns(kind, words, size_bytes):
    machine = _machine(words)
    if kind == "all_reduce":
        return all_reduce_ns(machine, size_bytes)
    if machine.levels:
        (hosts,) = machine.levels
        return hosts.message_ns + size_bytes / hosts.bandwidth_bytes_per_s * NS_PER_S
    link = machine.host.device_links()[0]
    # NCCL's copies are kernels: TensorFlow need not notice that they ended.
    latency_ns = link.latency_ns - hardware_figures()["copies"]["notice_ns"]
    return latency_ns + size_bytes / link.bandwidth_bytes_per_s * NS_PER_S


# What to call for a batch; others of the record's models, Keras has not, or not on one page.
MODELS = {
    "imagenet": ("trained('resnet50', {}, is_fused=True)", (40, 200)),
    "bert": ("trained_bert({}, 384)", (4, 12)),
}
NETWORKS = ("Ethernet10", "Ethernet100")
PLACEMENTS = ("1", "2", "4", "11", "22", "44", "1111", "2222", "4444")


def pollux(record):
    """Yield steps as long as one GPU's measured one, times what is predicted to be lost."""
    for name, (call, batches) in MODELS.items():
        text = (record / name / "placements.csv").read_text(encoding="utf-8")
        taken = {
            (row["placement"], row["local_bsz"]): float(row["step_time"]) * NS_PER_S
            for row in csv.DictReader(text.splitlines())
        }
        for batch in batches:
            traces = traced(call.format(batch), batch)
            one_ns = _step_ns(traces, "1", "")
            for placement in PLACEMENTS:
                hosts, measured_ns = len(placement), taken[placement, str(batch)]
                for network in NETWORKS if hosts > 1 else ("",):
                    loss = _step_ns(traces, placement, network) / one_ns
                    kind = f"{hosts} hosts, {network}" if network else "1 host"
                    yield Timing(name, "T4", kind, measured_ns, taken["1", str(batch)] * loss)


def _step_ns(traces, placement, network):
    """Return the simulated step on as many GPUs of each host as the placement has digits."""
    machine = read_machine(f"{len(placement)}x(4xT4)-{network}" if network else "4xT4")
    names = machine.host.device_names()[: int(placement[0])]
    cluster = machine.host.with_devices(names)
    steps = data_parallel.DataParallelSteps(traces.weak(len(names)))
    proposed = steps.propose_on_hosts(data_parallel.ONE_BY_ONE, cluster.devices, ALL_DEVICES)
    assert isinstance(proposed, data_parallel.DataParallel), proposed
    rings = ring_of_devices(cluster), *machine.first_levels(len(placement))
    return simulated(proposed, cluster, rings).step_ns


HALF_CARDS = {"a100": "A100-80GB-SXM4", "h100": "H100-SXM5"}
# From here on, as in `gpu_ops.py`, launches are a small part.
LEAST_MS = 0.3


def _read_products(folder):
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


def print_half_products(record):
    """Print how far products in float16 are off, those that were seen and those that judge."""
    for card, gpu in HALF_CARDS.items():
        measured_ms = _read_products(record / card)
        sizes = [each for each, taken_ms in measured_ms.items() if taken_ms >= LEAST_MS]
        random.Random(0).shuffle(sizes)
        for half, chosen in (("seen", sizes[::2]), ("judged", sizes[1::2])):
            ratios = [
                kernel_time("linear", (1, *each), gpu_facts(gpu), Arithmetic.FLOAT16).time_ns
                / (measured_ms[each] * NS_PER_MS)
                for each in chosen
            ]
            error = f"{mean(abs(ratio - 1) for ratio in ratios):.1%}"
            print(f"{gpu}, {half}: {len(ratios)} products, {error} off, {mean(ratios) - 1:+.1%}")


RECORDS = {"DeepBench_NV_V100.xlsx": deepbench, "a100_dgx": vidur, "imagenet": pollux}


def print_ratios(record):
    """Print what is predicted over what was measured."""
    read = next(reader for name, reader in RECORDS.items() if (record / name).exists())
    groups = defaultdict(list)
    draws = defaultdict(lambda: np.random.default_rng(SEED))
    for timing in read(record):
        kinds = [timing.kind]
        if read is deepbench:
            is_apart = draws[timing.op.partition("_")[0]].random() >= 1 / 2
            kinds += ["all", "half kept apart"] if is_apart else ["all"]
        ratio = timing.predicted_ns / timing.measured_ns
        for kind in kinds:
            groups[timing.op, timing.machine, kind].append((timing.measured_ns, ratio))
    names = "op | machine | kind | rows | measured µs"
    print(table_head(f"{names} | predicted / measured: 10 % | median | 90 %"))
    for group, found in groups.items():
        ratios = [ratio for _, ratio in found]
        tenth, *_, last = quantiles(ratios * 2, n=10, method="inclusive")
        told = (f"{ratio:.2f}" for ratio in (tenth, median(ratios), last))
        print(table_row(*group, len(found), f"{median(ns for ns, _ in found) / 1e3:.0f}", *told))


def main(records: list[Path]):
    for record in records:
        is_of_halves = next(record.rglob("mlp.csv"), None) is not None
        (print_half_products if is_of_halves else print_ratios)(record)


if __name__ == "__main__":
    typer.run(main)
