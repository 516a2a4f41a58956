"""A small analysis written by hand: two towers on two workers, and variations of it."""

import json
from dataclasses import replace
from pathlib import Path

from sample_values import links_between, measurement

from placement_advisor.analysis import analysis_result
from placement_advisor.analysis.options import AnalyzeOptions
from placement_advisor.analysis.predictions import bound_from
from placement_advisor.cost.gpu.assumed_times import AssumedTimes, FamilyTime
from placement_advisor.cost.gpu.kernel_times import KernelBasis
from placement_advisor.cost.table import CostSource
from placement_advisor.files.contract import plain, value_of
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Basis, Cluster, Device
from placement_advisor.measurement.measurement import (
    Activity,
    CandidateFailure,
    FailureKind,
    Interval,
    Invariant,
    SizeBasis,
    Span,
    StepProfile,
    TransferTotal,
    Violation,
    compare,
)
from placement_advisor.measurement.verification import Verification
from placement_advisor.report.analysis_folder import write_analysis
from placement_advisor.results import analysis as results
from placement_advisor.simulator.schedule import (
    OpRun,
    PeakMemory,
    Schedule,
    Transfer,
    copy_intervals,
    exposed_by_device,
)
from placement_advisor.simulator.sensitivity import CostUncertainty, PredictedRatio
from placement_advisor.solvers.lower_bounds import LowerBound
from placement_advisor.tf.load.model_source import ModelSource

US = 1_000
CAPTURED = analysis_result.CapturedStep(
    call="model.fit", step="train.py:9", is_replica=False, run_command="advisor run train.py"
)
_SOURCE = ModelSource(path="sample_models/deepconn.py")
OPTIONS = AnalyzeOptions(source=_SOURCE, output=Path("advisor-out/deepconn"))
W0, W1 = "worker:0", "worker:1"
TIMES = AssumedTimes(
    gpu="V100-SXM2",
    launch_share=0.2,
    families=(
        FamilyTime(family="conv", basis=KernelBasis.FITTED, error=0.15, share=0.3),
        FamilyTime(family="add", basis=KernelBasis.FITTED, error=0.003, share=0.05),
        FamilyTime(family="relu", basis=KernelBasis.FITTED, error=0.005, share=0.03),
    ),
    assumed_share=0.32,
    roofline_share=0.1,
)
_DOUBT = CostUncertainty(copies=2.0, launches=2.0, ops=1.25)
_BELIEVED = PredictedRatio(ratio=0.58, low=0.5, high=0.8, doubt=_DOUBT)
HOSTILE = "<img onerror=x>|[bold]"

# op, device, start, end; then producer, source, target, bytes, start, end. Microseconds.
_OPS_US = {
    **{"lookup": 2_000, "user_conv": 13_000, "item_conv": 13_000, "dot": 500},
    **{"user_conv_grad": 11_000, "item_conv_grad": 11_000, "adam": 1_500},
}


def _runs(devices, *starts_us):
    """Return a run of each op on the device of its digit, from the time that is given for it."""
    return [
        (op, (W0, W1)[int(device)], start_us, start_us + _OPS_US[op])
        for op, device, start_us in zip(_OPS_US, devices, starts_us, strict=True)
    ]


_SINGLE_RUNS = _runs("0000000", 0, 2_000, 15_000, 28_000, 28_500, 39_500, 50_500)
_TOWER_RUNS = _runs("0010010", 0, 2_300, 2_300, 15_700, 16_200, 16_500, 28_600)
_TOWER_COPIES = [
    ("lookup", W0, W1, 160_000, 2_000, 2_300),
    ("item_conv", W1, W0, 8_192, 15_300, 15_700),
    ("dot", W0, W1, 8_192, 16_200, 16_500),
    ("item_conv_grad", W1, W0, 1_240_000, 27_500, 28_600),
]
_ALTERNATING_RUNS = _runs("0101101", 0, 4_000, 19_000, 34_000, 34_500, 36_500, 49_500)
_ALTERNATING_COPIES = [
    (op, device, W1 if device == W0 else W0, 3_200_000, end_us, end_us + 2_000)
    for op, device, _, end_us in _ALTERNATING_RUNS
    if op not in ("user_conv_grad", "adam")
]
_PROFILE_SLOWDOWN = 1.04


def schedule_of(label, runs, copies, peaks, unit_ns=US):
    """Return the schedule of runs and copies, given as above, with times in a unit."""
    compute = dict.fromkeys(peaks, 0)
    for _, device, start, end in runs:
        compute[device] += (end - start) * unit_ns
    op_runs = tuple(
        OpRun(op=op, device=d, ready_ns=s * unit_ns, start_ns=s * unit_ns, end_ns=e * unit_ns)
        for op, d, s, e in runs
    )
    transfers = tuple(
        Transfer(
            producer=op,
            port=0,
            source=source,
            target=target,
            size_bytes=size,
            start_ns=s * unit_ns,
            end_ns=e * unit_ns,
        )
        for op, source, target, size, s, e in copies
    )
    return Schedule(
        label=label,
        runs=op_runs,
        transfers=transfers,
        step_ns=max(run[3] for run in runs) * unit_ns,
        compute_ns=compute,
        exposed_by_device=exposed_by_device(op_runs, copy_intervals(transfers), peaks),
        peak_memory={
            device: PeakMemory(
                size_bytes=size, at_ns=0, resident_bytes=size // 2, contributors=(), rest_bytes={}
            )
            for device, size in peaks.items()
        },
    )


def _slow(time_ns):
    return round(time_ns * _PROFILE_SLOWDOWN)


def _span(lane, name, timed, *, is_copy):
    times = {"start_ns": _slow(timed.start_ns), "end_ns": _slow(timed.end_ns)}
    return Span(lane=lane, name=name, is_copy=is_copy, **times)


def _activity(name, calls, times_ns, least, most, *, is_copy):
    total_ns = calls * sum(times_ns) // len(times_ns)
    ends = {"min_ns": least, "max_ns": most}
    return Activity(name=name, calls=calls, total_ns=total_ns, is_copy=is_copy, **ends)


def _profile(schedule):
    """The schedule as the profiler would have seen it, a little slower."""
    steps = 10
    runs = [_span(run.device, run.op, run, is_copy=False) for run in schedule.runs]
    activities, transfers = [], []
    for run in runs:
        time_ns = run.end_ns - run.start_ns
        ends = round(time_ns * 0.9), round(time_ns * 1.3)
        activities.append(_activity(run.name, steps, [time_ns], *ends, is_copy=False))
    for source, target in sorted({(copy.source, copy.target) for copy in schedule.transfers}):
        lane = [c for c in schedule.transfers if (c.source, c.target) == (source, target)]
        times_ns = [_slow(copy.end_ns - copy.start_ns) for copy in lane]
        transfers.append(
            TransferTotal(
                source=source,
                target=target,
                count=len(lane),
                size_bytes=sum(copy.size_bytes for copy in lane),
                size_basis=SizeBasis.SHAPES,
                time_ns=sum(times_ns),
                exposed_ns=min(_slow(schedule.exposed_by_device[target]), sum(times_ns)),
            )
        )
        name = f"[gRPC copy {source} → {target}]"
        ends = min(times_ns), max(times_ns)
        activities.append(_activity(name, steps * len(lane), times_ns, *ends, is_copy=True))
    copies = [
        _span(f"{c.source} → {c.target}", c.producer, c, is_copy=True) for c in schedule.transfers
    ]
    return StepProfile(
        step_ns=(_slow(schedule.step_ns),) * steps,
        compute_ns={device: _slow(time) for device, time in schedule.compute_ns.items()},
        exposed_by_device={d: _slow(time) for d, time in schedule.exposed_by_device.items()},
        transfers=tuple(transfers),
        activities=tuple(activities),
        op_ns={run.name: run.end_ns - run.start_ns for run in runs},
        timeline=(*runs, *copies),
    )


def _measurement(schedule, step_us, drifts_us, difference):
    """Rounds of three steps around the given time, each round off by its drift."""
    verified = None
    if difference is not None:
        verified = Verification(steps=4, variables=6, relative_difference=difference)
    return measurement(
        tuple(
            tuple((step_us + 100 * place + drift) * US for place in range(-1, 2))
            for drift in drifts_us
        ),
        warmup_ns=(3 * step_us * US, 2 * step_us * US),
        verification=verified,
        profile=_profile(schedule),
        profile_run=f"{schedule.label}/plugins/profile/2026_01_01",
    )


def _placement(label, runs, rationale):
    device_of = {op: device for op, device, _, _ in runs}
    return Placement(label=label, family=label, device_of=device_of, rationale=rationale)


def _links(devices):
    return links_between(devices, 240 * US, bandwidth_bytes_per_s=1.5e9, basis=Basis.MEASURED)


def _candidate(plan, runs, rationale, **found):
    layers = ("lookup", "user_conv", "item_conv", "dot", "adam")
    return analysis_result.Candidate(
        name=plan.label,
        family=plan.label,
        rationale=rationale,
        placement=_placement(plan.label, runs, rationale),
        predicted=plan,
        by_layer={op: device for op, device, _, _ in runs if op in layers},
        **found,
    )


CAVEAT = (
    "stand-ins do not tell how fast this machine is: as-is on all cores 29.4 ms, towers 30.5 ms"
)
WORDS = "layers item_conv on worker:1, all other layers on worker:0; their gradients with them"
TOWERS = "split: towers, 1.69× (95 % interval 1.64–1.71)"


def sample():
    """Three candidates: single and towers ran, alternating was killed."""
    single_plan = schedule_of("single", _SINGLE_RUNS, [], peaks={W0: 18_400_000, W1: 0})
    held = {W0: 12_100_000, W1: 8_200_000}
    towers_plan = schedule_of("towers", _TOWER_RUNS, _TOWER_COPIES, held)
    alternating_plan = schedule_of(
        "alternating", _ALTERNATING_RUNS, _ALTERNATING_COPIES, peaks={W0: 14_000_000, W1: 9_100_000}
    )
    single_run = _measurement(single_plan, 51_000, 2 * (-600, 0, 300, 900, -200, 0), None)
    towers_run = _measurement(towers_plan, 30_400, 2 * (400, -500, 900, 0, -800, 200), 2.5e-7)
    why = "worker:1 was ended by SIGKILL in round 3"
    killed = CandidateFailure(kind=FailureKind.CRASHED, message=why)
    candidates = (
        _candidate(single_plan, _SINGLE_RUNS, "everything on one device", measured=single_run),
        _candidate(
            *(towers_plan, _TOWER_RUNS, "2 towers meet only at dot; one per device"),
            measured=towers_run,
            comparison=compare("single", single_run.rounds, towers_run.rounds, among=1),
        ),
        _candidate(
            *(alternating_plan, _ALTERNATING_RUNS),
            "the device changes at every layer, the worst case on purpose",
            failure=killed,
        ),
    )
    return analysis_result.Analysis(
        advisor_version="0.1.0",
        tensorflow_version="2.21.0",
        options=OPTIONS,
        title="deepconn",
        model=analysis_result.Model(
            path="sample_models/deepconn.py",
            mode="train",
            batch_size=32,
            ops=412,
            edges=587,
            parameter_bytes=1_250_000,
            edge_bytes_known_share=0.996,
            chosen="the compiled Keras model `model`, training step",
            graph_fingerprint="0123456789abcdef",
            captured=None,
            batch_is_made_up=False,
            left_out=(),
        ),
        testbed=analysis_result.TestbedSummary(
            kind="workers",
            stand_in=True,
            description="2 CPU stand-ins (1 core each, gRPC)",
            cluster=Cluster(
                devices=(Device(name=W0, kind="CPU"), Device(name=W1, kind="CPU")),
                links=_links((W0, W1)),
            ),
            fingerprint="a1b2c3d4e5f60718",
            not_run=None,
        ),
        sessions=1,
        as_is=tuple((29_400 + 50 * place) * US for place in range(-3, 4)),
        candidates=candidates,
        recommendation=analysis_result.Recommendation(
            verdict=analysis_result.AdviceVerdict.SPLIT,
            candidate="towers",
            speedup=Interval(median=1.69, low=1.64, high=1.72),
            basis="measured",
            applies_to="2 CPU stand-ins (1 core each, gRPC)",
            headline=f"{TOWERS}, measured on 2 CPU stand-ins (1 core each, gRPC); {CAVEAT}",
            answer=TOWERS,
            caveat=CAVEAT,
            deciding=(
                "towers: worker:0 waits 1.56 ms for copies, 5 % of its step (profiled)",
                "towers: worker:0 computes for 29.1 ms a step, single for 54.1 ms (profiled)",
                "no placement of these ops takes less than 29.2 ms; single takes 52.0 ms "
                "(simulated)",
            ),
            reasons=(
                "towers computes 29.1 ms on worker:0 and 25.0 ms on worker:1 at the same time; "
                "single computes 54.1 ms on one device",
                "copies take 2.18 ms of its 30.5 ms step, 1.64 ms of that exposed",
            ),
            others=(),
        ),
        findings=(
            analysis_result.Finding(
                code="PA201",
                name="step-waits-for-transfers",
                finding="the gradient of the shared embedding crosses worker:1 → worker:0",
                action="keep the item tower's part of the embedding on worker:1",
                where={"layer": "item_conv", "file": "sample_models/deepconn.py", "line": 41},
                saving=analysis_result.Saving(
                    step_ns=30_500 * US, saving_ns=1_100 * US, low_ns=700 * US, high_ns=1_500 * US
                ),
            ),
        ),
        warnings=("alternating was not measured: it crashed; the verdict rests on the others",),
        timings_ns={
            **{"import": 12_400_000_000, "load": 900_000_000, "trace": 2_100_000_000},
            **{"calibrate": 1_200_000_000, "simulate": 80_000_000, "run": 21_000_000_000},
            **{"profile": 3_400_000_000, "report": 1_900_000_000},
        },
        bound=bound_from(
            LowerBound(
                split_ns=29_200 * US,
                alone_ns={W0: 52_000 * US, W1: 52_600 * US},
                reason="critical path: 3 ops need one another in turn, 28.7 ms",
            ),
            52_000 * US,
            CostSource.MEASURED,
            CostUncertainty(copies=1.5, launches=1.5, ops=1.1),
            None,
        ),
        how=analysis_result.HowToSplit(
            candidate="towers",
            words=WORDS,
            words_in_short=WORDS,
            call=(
                "import placement_advisor\n\n"
                'step = placement_advisor.place(step, "placements/towers.json", *inputs)\n'
            ),
            listing='DEVICE = {"worker:0": "/GPU:0", "worker:1": "/GPU:1"}\n',
        ),
    )


def unmeasured():
    """The same with ``--no-run``."""
    measured = sample()
    return replace(
        measured,
        sessions=0,
        as_is=None,
        candidates=tuple(
            replace(candidate, measured=None, comparison=None, failure=None)
            for candidate in measured.candidates
        ),
        testbed=replace(measured.testbed, not_run="--no-run: no step was executed"),
        recommendation=replace(
            measured.recommendation,
            speedup=Interval(median=1.73, low=1.73, high=1.73),
            basis="simulated",
            headline=f"split: towers, 1.73×, simulated for {measured.testbed.description}",
            answer="split: towers, 1.73×",
            caveat=None,
            deciding=("towers: worker:0 waits 1.50 ms for copies, 5 % of its step (simulated)",),
            reasons=("both towers compute at the same time, as simulated",),
            next_run=analysis_result.NextRun(change="without --no-run", takes_ns=124_000_000_000),
        ),
        warnings=(),
        timings_ns={"import": 12_400_000_000},
    )


def ranged():
    """The same, with the ends of what is simulated."""
    plain = unmeasured()
    alone, *splits = plain.candidates
    believed = (replace(split, predicted_ratio=_BELIEVED) for split in splits)
    return replace(plain, candidates=(alone, *believed))


def changed(analysis, number, **changes):
    """The same with changes of one candidate."""
    candidates = [*analysis.candidates]
    candidates[number] = replace(candidates[number], **changes)
    return replace(analysis, candidates=tuple(candidates))


def joined():
    """The split that ran had joined after two others, which changed what was predicted of it."""
    after = replace(_BELIEVED, ratio=0.64, low=0.625, high=1.0, runs=2)
    return changed(sample(), 1, predicted_ratio=_BELIEVED, ratio_after_runs=after)


def unreliable():
    """The profile of the towers breaks a law."""
    broken = Violation(law=Invariant.PARTS_ADD_UP, what="parts of its step do not add up to it")
    return changed(sample(), 1, broken_laws=(broken,))


def elsewhere():
    """The same for two GPUs that are not here."""
    predicted = unmeasured()
    description = "2xV100 (assumed)"
    answer = replace(
        predicted.recommendation,
        applies_to=description,
        headline=predicted.recommendation.headline.replace(
            predicted.testbed.description, description
        ),
        next_run=None,
    )
    return replace(
        predicted,
        options=replace(OPTIONS, hardware="2xV100"),
        testbed=replace(
            predicted.testbed,
            kind="none",
            stand_in=False,
            description=description,
            cluster=Cluster(
                devices=tuple(Device(name=n, kind="GPU", gpu="V100-SXM2") for n in (W0, W1)),
                links=_links((W0, W1)),
            ),
            not_run="--hardware 2xV100: predicted for devices that are not here, not run",
        ),
        recommendation=answer,
        assumed_times=(TIMES,),
    )


def hostile():
    """Names that would be markup, or drive a terminal, if reports did not escape them."""
    plain = sample()
    measured = plain.candidates[1].measured
    first, *others = measured.profile.activities
    named = replace(measured.profile, activities=(replace(first, name=HOSTILE), *others))
    layers = {HOSTILE: W0, "evil\x1b[31m`code`": W1}
    split = changed(plain, 1, by_layer=layers, measured=replace(measured, profile=named))
    crashed = CandidateFailure(kind=FailureKind.CRASHED, message=f"in layer {HOSTILE}\x1b[2J")
    return replace(
        changed(split, 2, failure=crashed),
        findings=(replace(plain.findings[0], where={"layer": HOSTILE}),),
        warnings=(f"layer {HOSTILE} is odd",),
    )


def four_devices():
    """One candidate that copies between all of four devices, with thousands of small ops."""
    names = tuple(f"worker:{number}" for number in range(4))
    runs = []
    copies = []
    for number in range(2_000):
        device, target = names[number % 4], names[(number // 3) % 4]
        start = number * 12
        runs.append((f"model/layer_{number}/MatMul", device, start, start + 9 + number % 7))
        if number % 3 == 0 and device != target:
            copies.append((f"model/layer_{number}", device, target, 4_096, start + 3, start + 40))
    runs.append(("model/head/Conv2DBackpropFilter", names[2], 24_100, 31_000))
    plan = schedule_of("alternating", runs, copies, peaks=dict.fromkeys(names, 12_000_000))
    plain = sample()
    return replace(
        plain,
        testbed=replace(
            plain.testbed,
            description="4 CPU stand-ins (1 core each, gRPC)",
            cluster=replace(
                plain.testbed.cluster,
                devices=tuple(Device(name=name, kind="CPU") for name in names),
                links=_links(names),
            ),
        ),
        candidates=(
            replace(
                plain.candidates[2],
                placement=_placement("alternating", runs, "the device changes at every layer"),
                predicted=plan,
                measured=_measurement(plan, 33_000, (0, 0, 0, 0, 0), 0.0),
                failure=None,
            ),
        ),
    )


def not_applicable():
    """The towers could not be proposed: neither predicted nor measured."""
    nothing = dict.fromkeys(("placement", "predicted", "measured", "comparison", "by_layer"))
    why = CandidateFailure(kind=FailureKind.NOT_APPLICABLE, message="the model has one tower")
    found = changed(sample(), 1, failure=why, **nothing)
    return replace(found, candidates=found.candidates[:2])


def with_batch():
    """The towers also as if they were replicas of 16 samples each."""
    plain = sample()
    shared = {"by_layer": None, "samples": (16, 16), "weak_predicted_ns": 60_000 * US}
    batch = replace(plain.candidates[1], name="batch", **shared)
    return replace(plain, candidates=(*plain.candidates, batch, replace(batch, name="mirrored")))


def written(folder, path="train.py", *, captured=CAPTURED, stand_in=False, **changes):
    """Write what was found of a script, on devices of its own; changes are those of the answer."""
    plain = sample()
    analysis = replace(
        plain,
        model=replace(plain.model, path=path, captured=captured),
        testbed=replace(plain.testbed, stand_in=stand_in),
        recommendation=replace(plain.recommendation, **changes),
    )
    folder.mkdir(parents=True)
    write_analysis(analysis, folder)
    return folder


def as_json(analysis):
    """An analysis as its file has it."""
    return plain(results.Analysis.of(analysis))


def read_back(document):
    """What is read of a file with that content."""
    return value_of(results.Analysis, json.dumps(document).encode())


def published(analysis):
    """An analysis as it is read back from its file."""
    return read_back(as_json(analysis))
