import json
import shlex
from dataclasses import fields, replace
from pathlib import Path

import pytest
from sample_analysis import OPTIONS
from sample_values import links_between

import placement_advisor.cli.analyze as analyze_command
from placement_advisor.analysis import resume
from placement_advisor.analysis.hosts import HostOptions, parse_hosts
from placement_advisor.analysis.runs import ReferenceTimings
from placement_advisor.analysis.step_costs import MeasuredCosts
from placement_advisor.analysis.target_costs import MEASURED_UNCERTAINTY
from placement_advisor.cli.app import app
from placement_advisor.cost.collectives import CollectiveTimes
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Basis, Cluster, CopyWork, Device, Dispatch, Sharing
from placement_advisor.machine.testbed_plan import HostLink, TestbedKind, plan_testbed
from placement_advisor.measurement.measurement import CandidateFailure, FailureKind
from placement_advisor.report import analysis_folder
from placement_advisor.simulator.sensitivity import PredictedRatio
from placement_advisor.solvers.effort import Effort
from placement_advisor.testbed.benchmark import EarlierRounds
from placement_advisor.testbed.cost_measurement import CostMeasurement
from placement_advisor.tf.load.model_source import ModelSource

HOSTS = HostOptions(requests=parse_hosts("a:2,b:1"), launch="ssh {host}", link=HostLink.TLS)


def asked(path="net.py", name=None, **options):
    of_source = {"mode": None, "batch_size": None, "outputs": ()}
    of_source |= {key: options.pop(key) for key in of_source.keys() & options.keys()}
    source = ModelSource(path=path, name=name, time_limit_s=1.0, **of_source)
    return replace(OPTIONS, source=source, output=None, **options)


@pytest.mark.parametrize(
    "words",
    [
        ["net.py"],
        ["my models/net.py:train step", "--batch-size", "16"],
        ["net.py", "--devices", "4", "--candidates", "towers,batch", "--ratios", "3:2.5:1:1"],
        ["net.py", "--testbed", "logical-cpus", "--open-ports", "--no-run"],
        ["net.py", "--hardware", "2xA100", "--costs", "logs/step.xplane.pb", "-o", "here"],
        ["net.py", "--quick", "--mode", "infer", "--outputs", "loss:0,top/score"],
        ["net.py", "--quick", "--effort", "20", "--seed", "3"],
        ["net.py", "--effort", "0.5", "--steps", "9", "--rounds", "90", "--refine", "0"],
        ["net.py", "--time-limit", "1000000.5"],
        ["net.py", "--hosts", "a:2,b:1", "--launch", "srun -w {host}", "--link", "direct"],
        ["net.py", "--hosts", "a:2@10.0.0.1,b:1@2001:db8::2"],
    ],
)
def test_the_command_with_another_batch_asks_for_nothing_else(words, monkeypatch):
    asked = []
    monkeypatch.setattr(analysis_folder, "analyze_into_folder", lambda one, _: asked.append(one))
    monkeypatch.setattr(analyze_command, "print_analysis", lambda *_, **__: None)
    app(["analyze", *words], standalone_mode=False)
    program, *again = shlex.split(asked[0].command(batch_size=208))
    app(again, standalone_mode=False)
    one, other = asked
    assert program == "advisor"
    assert other.source.batch_size == 208
    source = replace(other.source, batch_size=one.source.batch_size)
    assert replace(other, source=source) == replace(one, output=None)


def test_names_of_objects_outputs_and_folders_are_those_of_the_folder():
    assert replace(asked(batch_size=4), output=Path("here")).folder == Path("here")
    assert asked(name="train_step").folder.name == "net-train_step"
    assert asked(name="steps.train/../..").folder.name == "net-steps.train-..-.."
    one, other = (asked(outputs=("x" * 300, last)).folder.name for last in "ab")
    assert len(one) == len(other) == 100 + 1 + 16
    assert one != other
    assert asked("train.py").run_command(None) == "advisor run train.py"
    assert asked("train.py").run_command(2) == "advisor run train.py --devices 2"


QUICK = {"quick": True, "run": False}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"path": "a/net.py"}, "net"),
        ({"path": "exported/"}, "exported"),
        ({"path": "net.keras"}, "net"),
        (QUICK, "net-quick"),
        ({"run": False}, "net-no-run"),
        ({"testbed": TestbedKind.NONE}, "net-no-run"),
        ({"hardware": "2xA100"}, "net-2xA100"),
        ({"hardware": "machines/two cards.toml"}, "net-two-cards"),
        ({"hardware": "2x(8xV100-NVLink)-10GbE"}, "net-2x-8xV100-NVLink-10GbE"),
        ({"hardware": "GTX1080Ti+GTX1080-PCIe3"}, "net-GTX1080Ti+GTX1080-PCIe3"),
        (QUICK | {"hardware": "2xA100"}, "net-2xA100-quick"),
        ({"hardware": "T4", "costs": Path("logs/step.xplane.pb")}, "net-T4-costs-step.xplane"),
        ({"batch_size": 64}, "net-batch64"),
        (QUICK | {"batch_size": 64, "mode": "infer"}, "net-infer-batch64-quick"),
        ({"outputs": ("loss:0", "top/score")}, "net-loss-0-top-score"),
        ({"devices": 4}, "net-4-devices"),
        ({"testbed": TestbedKind.LOGICAL_CPUS}, "net-logical-cpus"),
        ({"hosts": HOSTS, "devices": 3}, "net-a-2-b-1"),
        ({"candidates": ("towers", "batch")}, "net-towers+batch"),
        ({"ratios": (3.0, 2.5)}, "net-ratios-3-2.5"),
    ],
)
def test_what_asks_for_another_answer_has_a_folder_of_its_own(options, name):
    assert asked(**options).folder == Path("advisor-out") / name


TABLE = CostTable(
    costs={
        "a/MatMul": OpCost(time_ns=12_345, basis=CostBasis.MEASURED),
        "b": OpCost(time_ns=0, basis=CostBasis.GUESSED),
    }
)
W0, W1 = "worker:0", "worker:1"
CLUSTER = Cluster(
    devices=(
        Device(name=W0, kind="CPU", launch_overhead_ns=17),
        Device(name=W1, kind="CPU", remote_end_ns=5),
    ),
    links=links_between(
        (W0, W1),
        200_000,
        bandwidth_bytes_per_s=1.5e9 / 7,
        basis=Basis.MEASURED,
        curve=((1, 200_000), (1_000, 230_000)),
        sender=CopyWork(per_copy_ns=3, ns_per_byte=0.1),
    ),
    dispatch=Dispatch(step_overhead_ns=9, asleep_ns=4),
    sharing=Sharing(split_ratio=1.1),
)
SINGLE = EarlierRounds(rounds=((1, 2), (3, 4)), warmup_ns=(9, 9), failure=None, is_brief=False)
CRASHED = CandidateFailure(kind=FailureKind.CRASHED, message="it crashed", in_full="x" * 20_000)
KEPT = resume.ResumeState(
    conditions={"--steps": "4", "testbed": "two"},
    traced={"graph": "0123"},
    sessions=2,
    joining=1,
    costs=MeasuredCosts(
        costing=CostMeasurement(costs=TABLE, cluster=CLUSTER, step_overhead_ns=77),
        shares={"batch": {16: TABLE, 8: CostTable(costs={})}},
        collectives=CollectiveTimes(call_ns=1, launch_ns=2, hop_ns=3, ns_per_byte=0.25),
    ),
    candidates={
        "single": SINGLE,
        "searched-2": replace(SINGLE, rounds=((), (5, 6)), warmup_ns=()),
        "alternating": EarlierRounds(rounds=((),), warmup_ns=(1,), failure=CRASHED, is_brief=True),
    },
    beside=ReferenceTimings(as_is_ns=(4, 4, 4, 5), warnings=("so",)),
    after_runs={
        "searched-2": PredictedRatio(
            ratio=0.9, low=0.8, high=1.1, doubt=MEASURED_UNCERTAINTY, runs=3
        )
    },
)


def damaged(document):
    """Yield a document with each of its values in turn left out, or another one in its place."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield {name: each for name, each in document.items() if name != key}
            for other in (None, "text", -1, [[]], {"x": None}, *damaged(value)):
                yield {**document, key: other}
    elif isinstance(document, list):
        for i, value in enumerate(document):
            yield document[:i] + document[i + 1 :]
            for other in (None, "text", -1, [[]], {"x": None}, *damaged(value)):
                yield [*document[:i], other, *document[i + 1 :]]


def test_what_is_written_is_read_again_and_a_damaged_file_is_read_or_refused_by_name(tmp_path):
    resume.write_resume_state(KEPT, tmp_path)
    assert resume.read_resume_state(tmp_path) == KEPT
    file, refusals = tmp_path / resume.ROUNDS_FILE, []
    documents = list(damaged(json.loads(file.read_text())))
    for document in documents:
        file.write_text(json.dumps(document))
        try:
            resume.read_resume_state(tmp_path)
        except AdvisorError as error:
            refusals.append(error.message)
    assert all(message.startswith(str(file)) for message in refusals)
    # The rest are texts and figures that may as well be others.
    assert len(refusals) > len(documents) / 2


def test_without_rounds_there_is_nothing_to_resume(tmp_path):
    with pytest.raises(AdvisorError, match="nothing to resume: it holds no analysis of which"):
        resume.read_resume_state(tmp_path)
    none = {"single": replace(SINGLE, rounds=())}
    resume.write_resume_state(replace(KEPT, candidates=none), tmp_path)
    with pytest.raises(AdvisorError, match=r"rounds.json: .* candidates: no round was timed"):
        resume.read_resume_state(tmp_path)


def test_a_candidate_or_a_placement_that_is_not_there_any_more_is_named(tmp_path):
    with pytest.raises(AdvisorError, match=r"placements/searched-2.json: cannot be read"):
        resume.read_searched_placements(tmp_path, KEPT, OpGraph([], []))
    resume.check_candidates_exist(KEPT, [*KEPT.candidates, "towers"], Path("out"))
    with pytest.raises(AdvisorError, match=r"rounds.json: .* there is no candidate 'searched-2'"):
        resume.check_candidates_exist(KEPT, ["single", "alternating"], Path("out"))


def test_what_differs_is_said_and_nothing_else():
    then = {"testbed": "two", "--steps": "4", "--ratios": "3:2"}
    now = {"testbed": "two", "--steps": "8", "--mode": "infer"}
    resume.check_same_conditions(then, then, Path("out"))
    with pytest.raises(AdvisorError) as refused:
        resume.check_same_conditions(then, now, Path("out"))
    assert refused.value.message == (
        "out: cannot be resumed, its rounds ran under other conditions: --steps: 4 then, 8 now; "
        "--ratios: 3:2 then, not given now; --mode: not given then, infer now"
    )


# What may be asked otherwise, as more rounds are then still more of the same: how many, where they
# are written, and what opens no ports. What is run by no rounds is refused.
FREE = {"rounds": 90, "output": Path("elsewhere"), "resume": True, "open_ports": True}
NOTHING_RUNS = {"hardware", "costs", "run", "quick"}
OTHERWISE = {
    "source": replace(OPTIONS.source, batch_size=64),
    "devices": 3,
    "testbed": TestbedKind.LOGICAL_CPUS,
    "candidates": ("towers",),
    "ratios": (3.0, 2.0),
    "effort": Effort(units=6.0),
    "steps": 5,
    "refine": 1,
}


def test_every_option_is_a_condition_or_changes_nothing_about_a_round():
    # Hosts change the plan, and are named as well.
    named = {"hosts", *FREE, *NOTHING_RUNS, *OTHERWISE}
    assert {field.name for field in fields(OPTIONS)} == named
    assert conditions() == conditions(**FREE)


def conditions(**changed):
    options = replace(OPTIONS, **{"testbed": TestbedKind.WORKERS, **changed})
    return resume.conditions_of(options, plan_testbed(options.testbed, options.devices))


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_makes_rounds_others_is_a_condition(name):
    assert conditions() != conditions(**{name: OTHERWISE[name]})
