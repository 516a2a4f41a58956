"""What `--hardware` knows by name, as text: tables of all, or all there is to say of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.cost.gpu.assumed_times import family_bases
from placement_advisor.cost.gpu.kernel_times import KernelBasis
from placement_advisor.graph.op_work.kernels import KernelFamily
from placement_advisor.machine.devices import Basis
from placement_advisor.machine.listed_hardware import listed_gpus, listed_links
from placement_advisor.report.analysis.statements import FAMILY_WORDS, mean_error_text
from placement_advisor.report.document import Section, Table, as_text
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
    from placement_advisor.report.document import Part

_WIDTH = 100
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
        parts = [*_all_gpus(gpus.values()), *_all_links(links.values())]
    else:
        of_each = [_one_gpu(gpus[n]) if n in gpus else _one_link(links[n]) for n in presets]
        parts = [part for parts in of_each for part in parts]
    return as_text(parts, _WIDTH)


def _all_gpus(gpus: Iterable[ListedGpu]) -> Iterator[Part]:
    rows = [
        [
            gpu.name,
            format_bytes(gpu.device.memory_bytes),
            *(_error(gpu, family) for family in _SHOWN.values()),
            ", ".join(gpu.links),
        ]
        for gpu in gpus
    ]
    titles = ["GPU", "memory", *_SHOWN, "links, the default first"]
    yield Table(titles, rows, names=(0, -1))
    yield (
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
    mark = _TRANSFERRED_MARK if basis is KernelBasis.TRANSFERRED else ""
    return f"{mark}{mean_error_text(error).replace('under', '<')}"


def _all_links(links: Iterable[ListedLink]) -> Iterator[Part]:
    rows = [
        [
            each.name,
            format_ns(each.link.latency_ns),
            each.latency_basis.value,
            format_bandwidth(each.link.bandwidth_bytes_per_s),
            each.bandwidth_basis.value,
        ]
        for each in links
    ]
    yield Table(("link", "latency", "", "bandwidth", ""), rows, names=(0, 2, 4))
    yield "With a name, such as `advisor hardware V100`: its figures and their sources."


def _one_gpu(gpu: ListedGpu) -> Iterator[Part]:
    device, facts = gpu.device, gpu.facts
    aliases = f"also called {', '.join(gpu.aliases)}" if gpu.aliases else ""
    yield Section("", [f"{gpu.name}: datasheet {gpu.datasheet}, chip {facts.chip}", aliases])
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
        off = "" if error is None else f"{mean_error_text(error)} off"
        rows.append([what, off, _BASIS_WORDS.get(basis, _ASSUMED)])
    yield Table(("", "", ""), rows, names=(0, -1))
    links = f"links: {', '.join(gpu.links)} (the first is the default)"
    yield Section("", [links, *_note_and_sources(gpu.note, gpu.sources)])


def _one_link(listed: ListedLink) -> Iterator[Part]:
    link = listed.link
    bandwidth = format_bandwidth(link.bandwidth_bytes_per_s)
    rows = [
        ["latency", format_ns(link.latency_ns), listed.latency_basis.value],
        ["bandwidth, one way", bandwidth, listed.bandwidth_basis.value],
    ]
    yield listed.name
    bridge = f"a bridge, which joins {listed.most_devices} devices"
    yield Section(
        "",
        [
            Table(("", "", ""), rows, names=(0, -1)),
            bridge if listed.most_devices is not None else "",
            *_note_and_sources(listed.note, listed.sources),
        ],
    )


def _note_and_sources(note: str | None, sources: Sequence[Source]) -> Iterator[Part]:
    if note is not None:
        yield f"note: {note}"
    of_each = [Section(f"{each.title}, {each.publisher}", [each.address]) for each in sources]
    yield Section("sources:", of_each)


def _rate(flops_per_s: float) -> str:
    return f"{format_flops(flops_per_s)}/s"
