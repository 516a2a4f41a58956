"""Texts about machines: hardware presets, a calibration, and what `doctor --run` found.

A calibration is printed as tables of links and cores, then one fact a line; JSON alone has single
copies, how far off the line they are, and pairs of devices that copy at once. `write_bundle` packs
what `doctor --run` saw for an issue, without names of users, hosts and paths.
"""

from __future__ import annotations

import ipaddress
import json
import re
import tempfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_advisor import units
from placement_advisor.analysis.acceptance import AcceptanceCheck, CheckOutcome
from placement_advisor.cost.gpu.kernel_times import KernelBasis
from placement_advisor.files.contract import plain
from placement_advisor.graph.op import KernelFamily
from placement_advisor.machine.calibration import REFERENCE_WIDTH
from placement_advisor.machine.testbed_plan import HostLink
from placement_advisor.profile.saved_profiles import scrubbed
from placement_advisor.report.doctor_text import WIDTH
from placement_advisor.report.document import Facts, Part, Section, Table, as_text
from placement_advisor.report.statements import FAMILY_WORDS, mean_error_text
from placement_advisor.results.analysis import PUBLISHED_STEPS
from placement_advisor.results.doctor import Doctor
from placement_advisor.results.machine import Acceptance, Gpu, Hardware, Link
from placement_advisor.tf.known_step import COPIES, OPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from placement_advisor.analysis import acceptance as seen
    from placement_advisor.cost.links import CalibrationSummary
    from placement_advisor.machine.devices import CopyWork
    from placement_advisor.machine.machine_facts import Facts as MachineFacts


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
    known = Hardware.of(presets)
    gpus = {gpu.name: gpu for gpu in known.devices}
    links = {link.name: link for link in known.links}
    if presets is None:
        parts = [*_all_gpus(gpus.values()), *_all_links(links.values())]
    else:
        of_each = [_one_gpu(gpus[n]) if n in gpus else _one_link(links[n]) for n in presets]
        parts = [part for parts in of_each for part in parts]
    return as_text(parts, _WIDTH)


def _all_gpus(gpus: Iterable[Gpu]) -> Iterator[Part]:
    rows = [
        [
            gpu.name,
            units.format_bytes(gpu.memory_bytes),
            *(_error(gpu, family) for family in _SHOWN.values()),
            ", ".join(gpu.links),
        ]
        for gpu in gpus
    ]
    titles = ["GPU", "memory", *_SHOWN, "links, the default first"]
    yield Table(titles, rows, names=(0, -1))
    yield (
        "Percentages say how far off times of float32 kernels are in the mean. The formulas "
        f"fit measured kernels of the same chip, or ({_TRANSFERRED_MARK}) those of other "
        f"chips. Where it says {_ASSUMED}, no such kernel was measured, nor any gradient, nor "
        "convolutions other than 3x3 with stride 1. Other ops follow from peaks and bandwidth "
        f"in datasheets. Of {PUBLISHED_STEPS.count} published training steps on one GPU, "
        f"predictions are {units.format_share(PUBLISHED_STEPS.mean_error)} off in the mean, "
        f"{units.format_share(PUBLISHED_STEPS.worst_error)} at worst."
    )


def _error(gpu: Gpu, family: KernelFamily) -> str:
    kernels = next(each for each in gpu.kernels if each.family == family.value)
    if kernels.mean_error is None:
        return _ASSUMED
    mark = _TRANSFERRED_MARK if kernels.basis == "transferred" else ""
    return f"{mark}{mean_error_text(kernels.mean_error).replace('under', '<')}"


def _all_links(links: Iterable[Link]) -> Iterator[Part]:
    rows = [
        [
            each.name,
            units.format_ns(each.latency_ns),
            each.latency_basis,
            units.format_bandwidth(each.bandwidth_bytes_per_s),
            each.bandwidth_basis,
        ]
        for each in links
    ]
    yield Table(("link", "latency", "", "bandwidth", ""), rows, names=(0, 2, 4))
    yield "With a name, such as `advisor hardware V100`: its figures and their sources."


def _one_gpu(gpu: Gpu) -> Iterator[Part]:
    aliases = f"also called {', '.join(gpu.aliases)}" if gpu.aliases else ""
    yield Section("", [f"{gpu.name}: datasheet {gpu.gpu}, chip {gpu.chip}", aliases])
    rows = [
        ["peak, float32", _rate(gpu.peak_flops_per_s), "published"],
        ["memory", units.format_bytes(gpu.memory_bytes), "published"],
        [
            "memory bandwidth",
            units.format_bandwidth(gpu.memory_bandwidth_bytes_per_s),
            "published",
        ],
        ["launch of an op", units.format_ns(gpu.launch_overhead_ns), gpu.launch_overhead_basis],
    ]
    if gpu.matrix_flops_per_s is not None:
        rows.insert(1, ["peak, TF32", _rate(gpu.matrix_flops_per_s), "published"])
    for each in gpu.kernels:
        family = KernelFamily(each.family)
        what = _NO_RECORD.get(family) or f"{family.value} ({FAMILY_WORDS[family]})"
        off = "" if each.mean_error is None else f"{mean_error_text(each.mean_error)} off"
        rows.append([what, off, _BASIS_WORDS.get(KernelBasis(each.basis), _ASSUMED)])
    yield Table(("", "", ""), rows, names=(0, -1))
    links = f"links: {', '.join(gpu.links)} (the first is the default)"
    yield Section("", [links, *_note_and_sources(gpu.note, gpu.sources)])


def _one_link(link: Link) -> Iterator[Part]:
    bandwidth = units.format_bandwidth(link.bandwidth_bytes_per_s)
    rows = [
        ["latency", units.format_ns(link.latency_ns), link.latency_basis],
        ["bandwidth, one way", bandwidth, link.bandwidth_basis],
    ]
    yield link.name
    bridge = f"a bridge, which joins {link.most_devices} devices"
    yield Section(
        "",
        [
            Table(("", "", ""), rows, names=(0, -1)),
            bridge if link.most_devices is not None else "",
            *_note_and_sources(link.note, link.sources),
        ],
    )


def _note_and_sources(note: str | None, sources: Sequence[Sequence[str]]) -> Iterator[Part]:
    if note is not None:
        yield f"note: {note}"
    of_each = [Section(f"{title}, {by}", [address]) for title, by, address in sources]
    yield Section("sources:", of_each)


def _rate(flops_per_s: float) -> str:
    return f"{units.format_flops(flops_per_s)}/s"


_LABEL_WIDTH, _TABLE_WIDTH = 19, 100
_BYTES_PER_MB = 10**6
# One step in ten takes a tenth longer than usual: differences of a few percent between candidates
# then need many rounds, which other work on the machine makes longer still.
_UNSTEADY_P90 = 1.1
# Past this, copies in predictions may be wrong by half: tensors are handed over as pointers, or the
# machine was busy with something else.
_ROUGH_RESIDUAL = 0.5
_LINK_WORDS = {
    HostLink.TLS: "tensors travel by TLS through a relay on each host (--link tls)",
    HostLink.DIRECT: "tensors travel as they are, unencrypted (--link direct)",
}


def render_calibration(summary: CalibrationSummary) -> str:
    """Return the text, which ends with what to type next."""
    head = f"calibrated {summary.description}, TensorFlow {summary.tensorflow_version}"
    tables = (_links(summary), _references(summary))
    return as_text([head, *tables, Facts(_facts(summary), _LABEL_WIDTH)], _TABLE_WIDTH)


def _links(summary: CalibrationSummary) -> Table:
    rows = []
    for ends, words in summary.links().items():
        link = summary.cluster.link(*ends)
        is_known = summary.calibration.links[ends][0].send_ns is not None
        work = [_work(link.sender), _work(link.receiver)] if is_known else ["?", "?"]
        times = [
            units.format_ns(link.latency_ns),
            units.format_bandwidth(link.bandwidth_bytes_per_s),
        ]
        rows.append([words, *times, *work])
    columns = ("latency", "bandwidth", "sender's core", "receiver's core")
    return Table(["copies", *columns], rows, label_width=_LABEL_WIDTH)


def _references(summary: CalibrationSummary) -> Table:
    calibration = summary.calibration
    rows = []
    for name, time_ns in calibration.reference_ns.items():
        flops = summary.flops_per_s(name)
        speed = "?" if flops is None else f"{units.format_flops(flops)}/s"
        slower = max(0.0, calibration.reference_p90[name] - 1)
        rows.append([name, units.format_ns(time_ns), speed, units.format_share(slower)])
    size = f"{REFERENCE_WIDTH} × {REFERENCE_WIDTH}"
    titles = ("reference product", size, "speed", "one step in ten is slower by")
    return Table(titles, rows, label_width=_LABEL_WIDTH)


def _facts(summary: CalibrationSummary) -> Iterator[tuple[str, str]]:
    calibration = summary.calibration
    for (one, other), timing in calibration.both_ways.items():
        took = "took no time above the noise"
        if timing.ratio is not None:
            took = (
                f"take {timing.ratio:.2f} times as long as one way (1: no hindrance, 2: in turns)"
            )
        size = units.format_bytes(timing.size_bytes)
        yield "both ways at once", f"{one} ↔ {other}: {size} each way {took}"
    if calibration.network is not None and summary.link is not None:
        yield "between hosts", _LINK_WORDS[summary.link]
    yield "a step", f"takes {units.format_ns(calibration.step_overhead_ns)} to start and end"
    if len(calibration.reference_ns) > 1 and calibration.remote_ns:
        yield (
            "a further device",
            f"adds {units.format_ns(calibration.partition_overhead_ns)} of the first one's time, "
            f"and {units.format_ns(calibration.remote_ns)} to start it and to report its end",
        )
    if calibration.quantum_ns:
        yield (
            "a busy device",
            f"turns to copies after {units.format_ns(calibration.quantum_ns)} of ops, and back",
        )
    if calibration.wake_ns:
        yield (
            "a device at rest",
            f"takes {units.format_ns(calibration.wake_ns)} longer to receive a copy",
        )
    if calibration.memory is not None:
        yield (
            "memory",
            f"gives a device alone {units.format_bandwidth(calibration.memory.bytes_per_s)}; "
            f"with another one it takes {calibration.memory.ratio:.2f} times as long",
        )
    yield "an op", f"that computes nothing takes {units.format_ns(calibration.op_ns)}"
    residuals = [
        summary.residual(ends, timing)
        for ends, timings in calibration.links.items()
        for timing in timings
    ]
    if any(abs(residual or 0) > _ROUGH_RESIDUAL for residual in residuals):
        yield "rough", "copy times do not follow a line here: predictions use the measured copies"
    if max(calibration.reference_p90.values()) >= _UNSTEADY_P90:
        yield "unsteady", "close what else runs on these cores and calibrate again"
    if summary.kept_in is None:
        yield "not kept", "the cache directory cannot be written; each analysis measures again"
    else:
        yield "kept in", summary.kept_in
        yield "", "and used until the machine, its system or TensorFlow changes"
    if summary.cluster_file is not None:
        yield "cluster file", summary.cluster_file
        for device in summary.cluster.devices:
            if device.peak_flops_per_s is None:
                yield "", f"to predict with it, give {device.name} a preset in it"
    cluster = f" --hardware {summary.cluster_file}" if summary.cluster_file is not None else ""
    yield "next", f"advisor analyze MODEL.py{cluster}"


def _work(work: CopyWork) -> str:
    return (
        f"{units.format_ns(work.per_copy_ns)} + "
        f"{units.format_ns(work.ns_per_byte * _BYTES_PER_MB)}/MB"
    )


_OUTCOME, _NAME = 9, 13
_UNTRIED = (
    "untried on GPUs: nobody has reported a run on one. Please attach your bundle to an issue, "
    "whatever comes out"
)
_README = """Here is a run of `advisor doctor --run`. docs/how-to/acceptance.md says more.

findings.json            versions, and findings with their figures
machine.json             what `advisor doctor --json` says of the machine
graph.json.gz            the op graph of the known step
profiles/PAIR/*.xplane.pb  raw profiles, one of the client and one for each worker

It holds no names of users or hosts, no addresses and no paths, in profiles too.
"""


def render_acceptance(found: Acceptance) -> str:
    """Return the text: a line per finding, at the end trust or what is off."""
    step = (
        f"known step: {len(OPS)} ops; {len(COPIES)} tensors cross "
        f"({units.format_bytes(sum(copy.size_bytes for copy in COPIES))})"
    )
    head = f"advisor {found.advisor_version}, TensorFlow {found.tensorflow_version}"
    untried = _UNTRIED if found.untried_on_gpus else ""
    first = Section("", [f"{head}; {found.description}", step, untried])
    pairs = [
        Section(
            "", [f"{pair.near} and {pair.far}", Facts(map(_row, pair.findings), _OUTCOME + _NAME)]
        )
        for pair in found.pairs
    ]
    last = Section("", [f"bundle: {found.bundle}", *_verdict(found)])
    # A path is there to be copied.
    return f"{as_text([first, *pairs], WIDTH)}\n{as_text([last])}"


def _row(found: AcceptanceCheck) -> tuple[str, str]:
    return f"{found.outcome.value:<{_OUTCOME}}{found.name}", found.finding


def _verdict(found: Acceptance) -> list[str]:
    words = []
    for pair in found.pairs:
        off = [each.name for each in pair.findings if each.outcome is CheckOutcome.OFF]
        words += [f"off: {', '.join(off)} ({pair.near} and {pair.far})"] if off else []
    if words:
        return [*words, f"do not trust measurements from here; attach {found.bundle} to an issue"]
    every = (each for pair in found.pairs for each in pair.findings)
    unknown = dict.fromkeys(each.name for each in every if each.outcome is CheckOutcome.UNKNOWN)
    rest = f"; unknown: {', '.join(unknown)}" if unknown else ""
    return [f"trust measurements from here: everything this machine can show is right{rest}"]


def write_bundle(
    path: Path, found: Acceptance, acceptance: seen.Acceptance, facts: MachineFacts
) -> None:
    """Write what was found, with what it was found in, without names.

    Raises:
        OSError: it cannot be written.
    """
    names = Redactor(acceptance.private_names)
    found = replace(found, bundle=Path(found.bundle).name)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("README.txt", _README)
        for name, content in (("findings", found), ("machine", Doctor.of(facts))):
            text = json.dumps(names.json(plain(content)), indent=2, ensure_ascii=False)
            bundle.writestr(f"{name}.json", f"{text}\n")
        with tempfile.TemporaryDirectory() as scratch:
            graph = Path(scratch) / "graph.json.gz"
            acceptance.graph.save(graph)
            bundle.write(graph, graph.name)
        for pair in acceptance.pairs:
            if pair.files is not None:
                folder = names.text(pair.title).replace(" ", "-")
                for process, profile in {"client": pair.files.client, **pair.files.devices}.items():
                    file = f"profiles/{folder}/{names.text(process)}.xplane.pb".replace(":", "-")
                    bundle.writestr(file, scrubbed(profile, names.text))


PATH, ADDRESS = "PATH", "ADDRESS"
# Names that TensorFlow gives to devices begin as paths do.
_PATH = re.compile(
    r"(?<![\w/.])(?:~|/(?!(?:job|host|device|replica|task):)[\w.+@-]+)(?:/[\w.+@-]+)+"
)
_IPV4 = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
# What may be one; names of C++ have double colons, too.
_IPV6 = re.compile(r"(?<![\w:])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")


@dataclass(frozen=True, slots=True)
class Redactor:
    """Takes out of texts what says whose they are: given names, addresses, paths.

    ``names`` has what is put in place of each. Left out: other names, paths of a single folder, and
    the rest of a path that has a space.
    """

    names: Mapping[str, str]

    def text(self, text: str) -> str:
        """Return the text without them.

        >>> Redactor({"ann": "user"}).text("ann's /home/ann/x on 10.0.0.2, /job:worker/task:0")
        "user's PATH on ADDRESS, /job:worker/task:0"
        """
        text = _IPV4.sub(ADDRESS, _PATH.sub(PATH, text))
        text = _IPV6.sub(lambda found: ADDRESS if _is_address(found[0]) else found[0], text)
        for name in sorted(self.names, key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", self.names[name], text)
        return text

    def json(self, content: Any) -> Any:
        """Return content of JSON without them, in keys as well."""
        if isinstance(content, str):
            return self.text(content)
        if isinstance(content, list):
            return [self.json(each) for each in content]
        if isinstance(content, dict):
            return {self.text(key): self.json(value) for key, value in content.items()}
        return content


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
