"""What `--hardware` knows by name, as text: tables of all, or all there is to say of one."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from placement_advisor.cost.gpu.assumed_times import family_bases
from placement_advisor.cost.gpu.kernel_times import KernelBasis
from placement_advisor.graph.op_work.kernels import KernelFamily
from placement_advisor.machine.devices import Basis
from placement_advisor.machine.listed_hardware import listed_gpus, listed_links
from placement_advisor.report.analysis.expected_errors import FAMILY_WORDS, error_text
from placement_advisor.results.analysis import PUBLISHED_STEPS
from placement_advisor.units import (
    format_bandwidth,
    format_bytes,
    format_flops,
    format_ns,
    format_share,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from placement_advisor.machine.listed_hardware import ListedGpu, ListedLink, Source

_WIDTH = 100
_GAP = "  "
# One of each kind stands for those that are alike.
_SHOWN = {
    "products": KernelFamily.LINEAR,
    "batched": KernelFamily.BMM,
    "conv.": KernelFamily.CONV,
    "elementwise": KernelFamily.ADD,
    "softmax": KernelFamily.SOFTMAX,
}
_TRANSFERRED_MARK, _ASSUMED = "*", "assumed"
_BASIS_WORDS = {
    KernelBasis.FITTED: "fitted to kernels of this chip",
    KernelBasis.TRANSFERRED: "transferred from other chips",
}
_NO_RECORD = {
    KernelFamily.CONV_BY_INPUT: "gradients of convolutions by the input",
    KernelFamily.CONV_BY_FILTER: "gradients of convolutions by the filter",
}


def render_hardware(presets: Sequence[str] | None) -> str:
    """Return the text about presets, one after the other, or about all, in tables."""
    gpus = {gpu.name: gpu for gpu in listed_gpus()}
    links = {link.name: link for link in listed_links()}
    if presets is None:
        parts = [_all_gpus(gpus.values()), _all_links(links.values())]
    else:
        parts = [_one_gpu(gpus[n]) if n in gpus else _one_link(links[n]) for n in presets]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _all_gpus(gpus: Iterable[ListedGpu]) -> Iterator[str]:
    rows = [["GPU", "memory", *_SHOWN, "links, the default first"]]
    rows += [
        [
            gpu.name,
            format_bytes(gpu.device.memory_bytes),
            *(_error(gpu, family) for family in _SHOWN.values()),
            ", ".join(gpu.links),
        ]
        for gpu in gpus
    ]
    yield from _table(rows, left={0, len(rows[0]) - 1})
    yield ""
    yield from _wrapped(
        "Percentages: how far off times of float32 kernels are in the mean, by formulas fitted to "
        f"measured kernels of the same chip, or ({_TRANSFERRED_MARK}) transferred from those of "
        f"others. {_ASSUMED.capitalize()}: no such kernel was measured; so are convolutions other "
        "than 3x3 with stride 1, and gradients of all. Other ops follow from peaks and bandwidth, "
        f"which datasheets publish. Of {PUBLISHED_STEPS.count} published training steps on one "
        f"GPU, predictions are {format_share(PUBLISHED_STEPS.mean_error)} off in the mean, "
        f"{format_share(PUBLISHED_STEPS.worst_error)} at worst."
    )


def _error(gpu: ListedGpu, family: KernelFamily) -> str:
    basis, error = family_bases(gpu.device)[family]
    if error is None:
        return _ASSUMED
    mark = _TRANSFERRED_MARK if basis is KernelBasis.TRANSFERRED else " "
    return f"{error_text(error).replace('under', '<')}{mark}"


def _all_links(links: Iterable[ListedLink]) -> Iterator[str]:
    rows = [["link", "latency", "", "bandwidth", ""]]
    rows += [
        [
            each.name,
            format_ns(each.link.latency_ns),
            each.latency_basis.value,
            format_bandwidth(each.link.bandwidth_bytes_per_s),
            each.bandwidth_basis.value,
        ]
        for each in links
    ]
    yield from _table(rows, left={0, 2, 4})
    yield ""
    yield "With a name, such as `advisor hardware V100`: its figures and their sources."


def _one_gpu(gpu: ListedGpu) -> Iterator[str]:
    device, facts = gpu.device, gpu.facts
    yield f"{gpu.name}: datasheet {gpu.datasheet}, chip {facts.chip}"
    if gpu.aliases:
        yield f"also called {', '.join(gpu.aliases)}"
    yield ""
    rows = [
        ["peak, float32", _rate(facts.peak_flops_per_s), "published"],
        ["memory", format_bytes(device.memory_bytes), "published"],
        ["memory bandwidth", format_bandwidth(facts.memory_bandwidth_bytes_per_s), "published"],
        ["launch of an op", format_ns(device.launch_overhead_ns), Basis.ASSUMED.value],
    ]
    if device.matrix_flops_per_s is not None:
        rows.insert(1, ["peak, TF32", _rate(device.matrix_flops_per_s), "published"])
    for family, (basis, error) in family_bases(device).items():
        what = _NO_RECORD.get(family) or f"{family.value} ({FAMILY_WORDS[family]})"
        off = "" if error is None else f"{error_text(error)} off"
        rows.append([what, off, _BASIS_WORDS.get(basis, _ASSUMED)])
    yield from _table(rows, left={0, 2})
    yield ""
    yield f"links: {', '.join(gpu.links)} (the first is the default)"
    yield from _note_and_sources(gpu.note, gpu.sources)


def _one_link(listed: ListedLink) -> Iterator[str]:
    link = listed.link
    yield listed.name
    yield ""
    yield from _table(
        [
            ["latency", format_ns(link.latency_ns), listed.latency_basis.value],
            [
                "bandwidth, one way",
                format_bandwidth(link.bandwidth_bytes_per_s),
                listed.bandwidth_basis.value,
            ],
        ],
        left={0, 2},
    )
    if listed.most_devices is not None:
        yield f"a bridge, which joins {listed.most_devices} devices"
    yield from _note_and_sources(listed.note, listed.sources)


def _note_and_sources(note: str | None, sources: Sequence[Source]) -> Iterator[str]:
    if note is not None:
        yield from _wrapped(f"note: {note}")
    if sources:
        yield "sources:"
    for source in sources:
        yield f"{_GAP}{source.title}, {source.publisher}"
        yield f"{_GAP * 2}{source.address}"


def _table(rows: Sequence[Sequence[str]], left: set[int]) -> list[str]:
    """Return rows in columns, those of numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(_GAP.join(cells).rstrip())
    return lines


def _rate(flops_per_s: float) -> str:
    return f"{format_flops(flops_per_s)}/s"


def _wrapped(text: str) -> list[str]:
    return wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
