"""`advisor doctor --run`: a known step on each two devices that are here, and what it tells.

The step is loaded, traced, placed, run and profiled as the model of an analysis is, and its
profile read by the same reader. What comes back is held against what `known_step` says must
come back.

On cores products must take what they take without the profiler, on GPUs whose name has a
datasheet what the op model says. Left out: mistakes that leave all of these figures as they
are; times and ways of GPUs that are not alike, since TensorFlow numbers these in another
order than the driver, and of GPUs of hosts.
"""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from placement_advisor.analysis.hosts import ConnectedHosts, HostOptions, connect
from placement_advisor.analysis.tracing import traced_model
from placement_advisor.cost.gpu.kernel_times import kernel_cost
from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.files.contract import Text
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.graph.placement import Placement
from placement_advisor.machine import testbed_plan
from placement_advisor.machine.doctor_checks import DEVICES
from placement_advisor.machine.gpu_facts import facts_of_card
from placement_advisor.machine.nvidia import PEER_ACCESS, common_name, find_gpus, find_peer_access
from placement_advisor.machine.this_machine import gpu_count
from placement_advisor.measurement.measurement import SizeBasis, StepProfile
from placement_advisor.processes.calls import CallFailure, expect
from placement_advisor.processes.children import Child, preload
from placement_advisor.profile.device_trace import HOST
from placement_advisor.remote_hosts.host_facts import user_name
from placement_advisor.remote_hosts.remote_host import LOCALHOST
from placement_advisor.testbed.benchmark import Benchmark, BenchmarkEntry, SilentProgress
from placement_advisor.testbed.testbed import STEP, ProfileFiles, Testbed
from placement_advisor.tf.calls import runner
from placement_advisor.tf.known_step import COPIES, FAR, MODEL, NEAR, OPS, outputs
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.testbed.benchmark import ProgressReporter
    from placement_advisor.tf.answers import Prepared


# Two measurements of one thing on a shared machine: a loop took 54 or 88 ms for seconds at a time,
# a factor of 1.6. Mistaken units make far more, and so does a part of a step that is lacking.
_SAME_WITHIN = 2.0
_NAMED = 3


class CheckOutcome(StrEnum):
    """What came of it. ``UNKNOWN`` neither grants trust nor refuses it."""

    OK = "ok"
    OFF = "off"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AcceptanceCheck:
    """What was looked at, and what came of it."""

    name: Text
    outcome: CheckOutcome
    finding: Text


class ExpectedTime(NamedTuple):
    """What the fastest product on a device must take, within a factor; ``source``: says who.

    ``product`` is how its name goes on behind near or far.
    """

    product: str
    time_ns: int
    within: float
    source: str


class Cards(NamedTuple):
    """What the driver calls GPUs that are alike, and its code for whether two reach each other."""

    name: str | None = None
    peer_access: Mapping[tuple[str, str], str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePair:
    """Two devices: what the known step must show there, what was found, and raw profiles.

    ``expected`` has devices of whose ops times are known, ``peer_access`` is None where no driver
    says it.
    """

    near: str
    far: str
    expected: Mapping[str, ExpectedTime]
    peer_access: str | None
    findings: tuple[AcceptanceCheck, ...] = ()
    files: ProfileFiles | None = None

    @property
    def title(self) -> str:
        """Names of both."""
        return f"{self.near} and {self.far}"

    def device_of(self, op: str) -> str:
        """Return where an op or a variable stands; the input is near."""
        return self.far if op.startswith(FAR) else self.near


class Acceptance(NamedTuple):
    """All that was seen, and what stands for each name of a person or a machine elsewhere."""

    plan: testbed_plan.TestbedPlan
    graph: OpGraph
    pairs: tuple[DevicePair, ...]
    private_names: Mapping[str, str]


def run_acceptance(
    hosts: HostOptions | None, open_ports: bool, scratch: Path, watcher: ProgressReporter
) -> Acceptance:
    """Run the known step on each two devices of ``hosts``, or of this machine; profiles stay.

    Raises:
        AdvisorError: the devices cannot be set up.
    """
    with ExitStack() as stack:
        connected, site = None, None
        if hosts is None:
            # All GPUs, or two workers where there are fewer than two.
            plan = testbed_plan.plan_here(
                None,
                max(DEVICES, gpu_count()),
                open_ports=open_ports,
                note=watcher.note,
                instead="two GPUs need none",
            )
        watcher.working("importing TensorFlow", 0, 1)
        preload()
        if hosts is not None:
            connected = connect(hosts, stack, watcher)
            plan, site = connected.plan, connected.site(scratch, stack)
        bundle = scratch / "bundle"
        bundle.mkdir()
        watcher.working("tracing the known step", 0, 1)
        with Child("loader") as loader:
            graph = traced_model(
                ModelSource(path=str(MODEL)), bundle, loader, SilentProgress()
            ).graph
        testbed = Testbed(plan, scratch=scratch, site=site)
        stack.callback(testbed.close)
        testbed.add_program(STEP, bundle, graph)
        watcher.working("starting devices", 0, 1)
        testbed.start()
        trial = Benchmark(testbed, steps=1, watcher=watcher)
        cards = cards_here() if plan.kind is testbed_plan.TestbedKind.GPUS else Cards()
        pairs = planned_pairs(plan, graph, cards, {} if plan.on_gpus else trial.speed())
        for number, pair in enumerate(pairs):
            watcher.working("running the known step", number, len(pairs), pair.title)
            pairs[number] = _run(pair, graph, testbed, trial)
        return Acceptance(plan, graph, tuple(pairs), _private_names(connected))


def cards_here() -> Cards:
    """Ask the driver about the GPUs that TensorFlow may see."""
    gpus = find_gpus()
    name = common_name(gpus)
    # Where some are hidden, the numbers of the others are not those of the driver.
    if name is None or gpu_count() != len(gpus.devices):
        return Cards(name)
    pairs = find_peer_access() or ()
    return Cards(name, {(f"GPU:{pair.first}", f"GPU:{pair.second}"): pair.code for pair in pairs})


def planned_pairs(
    plan: testbed_plan.TestbedPlan, graph: OpGraph, cards: Cards, product_ns: Mapping[str, int]
) -> list[DevicePair]:
    """Return what is to run on each two devices, and what it must show there.

    ``cards`` are GPUs of one process, ``product_ns`` is what a product takes on cores.
    """
    names = [device.name for device in plan.devices]
    expected = {
        device: ExpectedTime("product", time_ns, _SAME_WITHIN, "without the profiler")
        for device, time_ns in product_ns.items()
    }
    facts, kernel = facts_of_card(cards.name or ""), graph.op("near/large_product").kernel
    if facts is not None and kernel is not None:
        cost = kernel_cost(kernel, facts)
        # Nine in ten kernels are within a factor, None where that is not known.
        within = max(_SAME_WITHIN, cost.within or 0)
        source = f"by the op model of {cards.name} (within {within:.2f})"
        time = ExpectedTime("large_product", cost.time_ns, within, source)
        expected = dict.fromkeys(names, time)
    return [
        DevicePair(
            near=near, far=far, expected=expected, peer_access=cards.peer_access.get((near, far))
        )
        for near, far in combinations(names, 2)
    ]


def _run(pair: DevicePair, graph: OpGraph, testbed: Testbed, trial: Benchmark) -> DevicePair:
    """Run the known step on two devices; whatever fails becomes a part of what was found."""
    label = pair.title.replace(" ", "-")
    device_of = {op.name: pair.device_of(op.name) for op in graph.placed_ops}
    placement = Placement(label=label, family="known", device_of=device_of, rationale="known")
    entry = BenchmarkEntry(placement=placement, bench=testbed)
    findings: list[AcceptanceCheck] = []
    try:
        testbed.start()  # The pair before may have taken it down.
        entry.prepared = expect(testbed.prepare(label, device_of, STEP), _no_answer)
        findings.append(judge_placement(pair, entry.prepared))
        results = expect(testbed.call(runner.results, label, 1), _no_answer)
        findings.append(judge_values(results.outputs))
        step_ns = trial.examine(entry)
        if entry.failure is not None:
            raise TestbedError(entry.failure.message)
        assert step_ns is not None, "no step has failed"
        assert entry.profile is not None, "no profile has failed"
        findings += judge_profile(pair, entry.profile, entry.profiled_steps, step_ns)
        testbed.call(runner.discard, label)
    except AdvisorError as error:  # Among others, a profile that cannot be read.
        findings.append(AcceptanceCheck("run", CheckOutcome.OFF, error.message))
    return replace(pair, findings=tuple(findings), files=entry.files)


def _no_answer(failure: CallFailure) -> TestbedError:
    return TestbedError(failure.message)


def _private_names(connected: ConnectedHosts | None) -> dict[str, str]:
    """Return what stands for the names of the user, of this machine, and of hosts."""
    names = {user_name(): "user", socket.gethostname(): "machine", socket.getfqdn(): "machine"}
    if connected is not None:
        both = zip(connected.hosts, connected.plan.hosts, strict=True)
        for number, (host, share) in enumerate(both, start=1):
            names |= {host.facts.host_name: f"host{number}", share.address: f"address{number}"}
            names[share.name] = f"host{number}"
    return {name: word for name, word in names.items() if name != LOCALHOST}


def _judged(name: str, is_right: bool | None, *words: str) -> AcceptanceCheck:
    """Return a finding; ``is_right`` is None if that is not to be told here."""
    outcome = {True: CheckOutcome.OK, False: CheckOutcome.OFF, None: CheckOutcome.UNKNOWN}[is_right]
    return AcceptanceCheck(name, outcome, "; ".join(words))


def judge_placement(pair: DevicePair, prepared: Prepared) -> AcceptanceCheck:
    """Judge what TensorFlow made of the placement: the graphs that it executes."""
    moved = [each for each in prepared.moved_ops if each.partition(": ")[0] in OPS]
    planned = Counter((copy.producer, pair.device_of(copy.producer)) for copy in COPIES)
    made = Counter((each.producer, each.source) for each in prepared.crossings)
    problems = [f"TensorFlow moved {first_names(moved, _NAMED)}"] if moved else []
    problems += [f"{name} leaves {device} too" for name, device in made - planned]
    problems += [f"{name} should leave {device}" for name, device in planned - made]
    where = f"{len(OPS) - len(moved)} of {len(OPS)} ops where they were put"
    cross = f"{(planned & made).total()} of {len(COPIES)} tensors cross"
    return _judged("placed", not problems, where, cross, *problems)


def judge_values(seen: Sequence[Any]) -> AcceptanceCheck:
    """Judge the outputs of the step."""
    same = [np.array_equal(*each) for each in zip(outputs().values(), seen, strict=True)]
    told = f"{sum(same)} of {len(same)} outputs are what they must be, to the last bit"
    return _judged("values", all(same), told)


def judge_profile(
    pair: DevicePair, profile: StepProfile, steps: int, step_ns: int
) -> Iterator[AcceptanceCheck]:
    """Judge a profile of ``steps`` of them, which take ``step_ns`` without the profiler."""
    yield _steps(profile, steps, step_ns)
    yield _ops(pair, profile)
    yield from _copies(pair, profile)
    yield _order(profile)
    yield _op_times(pair, profile)


def _steps(profile: StepProfile, steps: int, step_ns: int) -> AcceptanceCheck:
    found, profiled_ns = len(profile.step_ns), median(profile.step_ns)
    problems = [law.what for law in profile.broken_laws]
    if profiled_ns < step_ns / _SAME_WITHIN:  # The profiler only lengthens steps.
        problems.append("the profile does not cover the steps")
    times = f"{format_ns(profiled_ns)} each, {format_ns(step_ns)} without the profiler"
    is_right = found == steps and not problems
    return _judged("steps", is_right, f"{found} of {steps} in the profile", times, *problems)


def _ops(pair: DevicePair, profile: StepProfile) -> AcceptanceCheck:
    """Judge on which devices the profile saw ops, in the step of median length."""
    seen = {(s.name, s.lane) for s in profile.timeline if not s.is_copy and s.name in OPS}
    lacking = [name for name in OPS if name not in dict(seen)]
    wrong = [f"{name} on {lane}" for name, lane in sorted(seen) if lane != pair.device_of(name)]
    problems = [f"not seen: {first_names(lacking, _NAMED)}"] if lacking else []
    problems += [f"TensorFlow ran these elsewhere: {first_names(wrong, _NAMED)}"] if wrong else []
    told = f"{len(OPS) - len(lacking)} of {len(OPS)} seen in the profile"
    return _judged("ops", not problems, told, *problems)


def _copies(pair: DevicePair, profile: StepProfile) -> Iterator[AcceptanceCheck]:
    """Judge how many copies go in each direction, their bytes, and which way they take.

    Without access to a peer's memory a copy goes over the host, in two parts; the first one counts.
    """
    totals = {(total.source, total.target): total for total in profile.transfers}
    # Texts of both directions, and whether they are right.
    counts, sizes, ways = dict[str, bool](), dict[str, bool | None](), set[str]()
    for word, here, there in (("there", pair.near, pair.far), ("back", pair.far, pair.near)):
        planned = [copy.size_bytes for copy in COPIES if pair.device_of(copy.producer) == here]
        must_be, total = sum(planned), totals.get((here, there)) or totals.get((here, HOST))
        count = 0 if total is None else total.count
        counts[f"{word} {count} of {len(planned)}"] = count == len(planned)
        if total is None or total.size_bytes is None:
            sizes[f"{word} ? of {must_be:,}"] = None
        else:
            sizes[f"{word} {total.size_bytes:,} of {must_be:,}"] = total.size_bytes == must_be
        if total is not None:
            ways.add("over the host" if total.target == HOST else "from GPU to GPU")
    unseen = profile.unseen_copies
    problems = [f"not seen: {first_names(unseen, _NAMED)}"] if unseen else []
    yield _judged("copies", all(counts.values()) and not problems, ", ".join(counts), *problems)
    by_shapes = any(total.size_basis is SizeBasis.SHAPES for total in profile.transfers)
    basis = ["by the shapes in the graph: a profile of a CPU has none"] if by_shapes else []
    right = set(sizes.values())
    is_right = False if False in right else None not in right or None
    yield _judged("bytes", is_right, ", ".join(sizes), *basis)
    yield _peer_access(pair.peer_access, ways)


def _peer_access(code: str | None, ways: set[str]) -> AcceptanceCheck:
    """Judge the way that copies between GPUs take against what the driver says."""
    if code is None or not ways:
        return _judged(
            "peer access",
            None,
            "no driver says whether there is any" if ways else "no copy was seen",
        )
    right = "from GPU to GPU" if code == PEER_ACCESS else "over the host"
    told = f"copies go {' and '.join(sorted(ways))}"
    return _judged("peer access", ways == {right}, told, f"the driver says {code}")


def _order(profile: StepProfile) -> AcceptanceCheck:
    """Judge when tensors are made, sent, received and read, in the step of median length."""
    # Either device may be that far from where it is shown.
    slack_ns = 2 * (profile.clock_uncertainty_ns or 0)
    ops = [span for span in profile.timeline if not span.is_copy]
    problems, right = [], 0
    for name, readers, _ in COPIES:
        made = [op.end_ns for op in ops if op.name == name]
        read = [op.start_ns + slack_ns for op in ops if op.name in readers]
        sent = [span for span in profile.timeline if span.is_copy and name in span.name]
        starts = [copy.start_ns + slack_ns for copy in sent]
        # Where clocks say that it arrived before, readers of profiles let it arrive at once.
        at_once = any(copy.end_ns <= copy.start_ns for copy in sent) and not slack_ns
        wrong = {
            "read before it is made": any(at < end for at in read for end in made),
            "sent before it is made": any(at < end for at in starts for end in made),
            "received when it is sent, or before": at_once,
            "read before it is received": any(at < copy.end_ns for at in read for copy in sent),
        }
        problems += [f"{name} is {what}" for what, is_so in wrong.items() if is_so]
        right += not any(wrong.values())
    if profile.clock_contradiction_ns:
        problems.append("no clock offsets explain the times of the copies between the hosts")
    told = f"{right} of {len(COPIES)} tensors are made, sent, received and read in that order"
    return _judged("order", not problems, told, *problems)


def _op_times(pair: DevicePair, profile: StepProfile) -> AcceptanceCheck:
    told, is_right = [], True
    for end, device in ((NEAR, pair.near), (FAR, pair.far)):
        if device not in pair.expected:
            return _judged("op times", None, ("no table of expected outputs fits this machine"))
        product, time_ns, within, source = pair.expected[device]
        name = f"{end}/{product}"
        # What runs beside an op only lengthens it.
        products = [op for op in OPS if op.startswith(name)]
        seen_ns = min((profile.op_ns[op] for op in products if op in profile.op_ns), default=0)
        told.append(f"{name} on {device} {format_ns(seen_ns)}, {format_ns(time_ns)} {source}")
        if not time_ns / within <= seen_ns <= time_ns * within:
            is_right = False
            told.append(f"off by more than a factor of {within:.3g}")
    return _judged("op times", is_right, *told)
