"""What `import placement_advisor` offers for op graphs, with costs in the form that is at hand.

Costs may be a `CostTable` for all devices, a mapping of op names to ns, a mapping of device and
host names to either, or None: then they are assumed, from the figures of each device (a roofline,
and formulas of GPU kernels).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from placement_advisor import defaults
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.errors import AdvisorError
from placement_advisor.files.untrusted import MAX_NS
from placement_advisor.graph.op import COST_FREE_ROLES

if TYPE_CHECKING:
    from placement_advisor.candidates.searched import SearchResult
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.report.python_report import Report
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.tf.training.trial import SplitPlan

Table: TypeAlias = CostTable | Mapping[str, int]
Costs: TypeAlias = Table | Mapping[str, CostTable] | Mapping[str, Mapping[str, int]] | None


def simulate(graph: OpGraph, placement: Placement, costs: Costs, cluster: Cluster) -> Schedule:
    """Return the simulated schedule of one step under a placement.

    >>> from placement_advisor import Cluster, Device, Edge, Op, OpGraph, Placement, simulate
    >>> graph = OpGraph(
    ...     [Op(name="a", kind="MatMul"), Op(name="b", kind="MatMul")],
    ...     [Edge(producer="a", consumer="b", port=0, size_bytes=4)],
    ... )
    >>> one = Cluster(devices=(Device(name="CPU:0", kind="CPU"),), links=())
    >>> both = {"a": "CPU:0", "b": "CPU:0"}
    >>> here = Placement(label="here", family="by hand", device_of=both, rationale="")
    >>> simulate(graph, here, {"a": 100, "b": 200}, one).step_ns
    300

    Raises:
        AdvisorError: an op has no cost.
        PlacementError: the placement does not fit the graph and the devices.
    """
    from placement_advisor.simulator.simulator import Simulator

    return Simulator(graph, _tables(graph, costs, cluster), cluster).schedule(placement)


def search(
    graph: OpGraph,
    costs: Costs,
    cluster: Cluster,
    *,
    pinned: Mapping[str, str] | None = None,
    effort: float = 5.0,
    seed: int = 0,
    time_limit_s: float | None = None,
) -> SearchResult:
    """Return the best placement that is found, with a bound on any.

    The best is that of the shortest simulated step. ``pinned`` has ops that have to be on a device.
    Effort is counted in units of about a second, so that equal arguments give equal answers
    anywhere; ``time_limit_s`` cuts by the clock as well.

    >>> from itertools import permutations
    >>> from placement_advisor import Basis, Cluster, Device, Link, Op, OpGraph, search
    >>> graph = OpGraph([Op(name="a", kind="MatMul"), Op(name="b", kind="MatMul")], [])
    >>> two = Cluster(
    ...     devices=(Device(name="CPU:0", kind="CPU"), Device(name="CPU:1", kind="CPU")),
    ...     links=tuple(
    ...         Link(source=s, target=t, latency_ns=10, bandwidth_bytes_per_s=1e9,
    ...              basis=Basis.ASSUMED)
    ...         for s, t in permutations(["CPU:0", "CPU:1"], 2)
    ...     ),
    ... )
    >>> found = search(graph, {"a": 100, "b": 200}, two, effort=0.01)
    >>> found.step_ns, found.lower_bound_ns, found.is_proven
    (200, 200, True)

    Raises:
        AdvisorError: an op has no cost.
        PlacementError: ops contradict one another or the devices, or nothing fits.
    """
    from placement_advisor.candidates.searched import search_step
    from placement_advisor.solvers.effort import Effort

    tables = _tables(graph, costs, cluster)
    hard = Effort(units=effort, seed=seed, time_limit_s=time_limit_s)
    return search_step(graph, tables, cluster, hard, pinned)


def analyze(
    model: Any,
    *inputs: Any,
    output: str | Path | None = None,
    devices: int = defaults.DEVICES,
    hardware: str | None = None,
    costs: str | Path | None = None,
    candidates: Sequence[str] | None = None,
    ratios: Sequence[float] | None = None,
    effort: float | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    mode: str | None = None,
    outputs: Sequence[str] = (),
    arguments: Sequence[str] = (),
    step: str | None = None,
    steps: int = defaults.STEPS,
    rounds: int | None = None,
    refine: int = defaults.REFINE,
    run: bool = True,
    quick: bool = False,
    open_ports: bool = False,
    resume: bool = False,
    time_limit_s: float = defaults.TIME_LIMIT_S,
    capture_timeout_s: float = defaults.CAPTURE_TIMEOUT_S,
) -> Report:
    """Analyse a model as `advisor analyze` does, write its reports, and return what it found.

    ``model`` is ``PATH[:NAME]``, a Keras model, or a function that is one step; ``inputs`` are then
    what it takes, as for `place`: those of a Keras model x and y, or one `tf.data.Dataset`, of
    which the first batch is taken. Steps run in child processes, so such an object is written, with
    the batch, as a model file into ``<output>.model``. A Keras model of Keras' own classes goes
    there as Keras saves it, anything else as the graph of its step. A step that calls Python while
    it runs (`tf.py_function`) is refused.

    A script of ``PATH`` runs with ``arguments``, its own. The others are the options of the
    command. In a notebook a line shows the progress; a script that calls this needs
    ``if __name__ == "__main__":``.

    Raises:
        AdvisorError: anything that the user can fix; no report is written then.
    """
    from rich.console import Console

    from placement_advisor.analysis.options import AnalyzeOptions, effort_of
    from placement_advisor.analysis.progress import SilentListener
    from placement_advisor.report.analysis_folder import analyze_into_folder
    from placement_advisor.report.progress import live_line
    from placement_advisor.report.python_report import Report
    from placement_advisor.tf.load.model_source import ModelSource, split_name

    if isinstance(model, str | Path):
        if inputs:
            raise AdvisorError(f"{model}: a file has its inputs", hint="give it alone")
        path, name = split_name(str(model))
    else:
        path, name = _handed_over(model, inputs, mode, output), None
    source = ModelSource(
        path=path,
        name=name,
        mode=mode,
        batch_size=batch_size,
        outputs=tuple(outputs),
        time_limit_s=time_limit_s,
        arguments=tuple(arguments),
        step=step,
        capture_timeout_s=capture_timeout_s,
    )
    options = AnalyzeOptions(
        source=source,
        devices=devices,
        hardware=hardware,
        costs=None if costs is None else Path(costs),
        testbed=None,
        candidates=None if candidates is None else tuple(candidates),
        ratios=None if ratios is None else tuple(ratios),
        effort=effort_of(effort, seed, quick=quick),
        steps=steps,
        rounds=rounds,
        refine=refine,
        run=run and not quick,
        quick=quick,
        open_ports=open_ports,
        output=None if output is None else Path(output),
        resume=resume,
    )
    console = Console()
    shown = live_line(console) if console.is_jupyter else nullcontext(SilentListener())
    with shown as listener:
        return Report(analyze_into_folder(options, listener), options.folder)


@contextmanager
def placed(
    analysis: str | Path, *, candidate: str | None = None, trial_steps: int = defaults.TRIAL_STEPS
) -> Iterator[None]:
    """Train within the block as an analysis recommends: what `advisor run` does, in this process.

    ``analysis`` is the folder of one, or of several: the newest. The training step of the block,
    that of ``fit``, of a `tf.function` or of a TF1 session, runs as it is until it is called again;
    then its split is verified and takes turns with it, ``trial_steps`` each way, and the faster one
    goes on. With ``trial_steps=0`` the split does. Messages go to stderr.

    ``candidate`` names another split than the recommended one. Devices are those of this process:
    GPUs, or the CPUs that it was cut into.

    At the end of the block variables are where they were, and so are functions of before.

    Example::

        with placement_advisor.placed("advisor-out/train"):
            model.fit(dataset, epochs=10)

    Raises:
        AdvisorError: there is no analysis, or it has no such candidate. What is wrong with the step
            is told, and training goes on as it is.
    """
    plan = _plan(analysis, candidate)
    if isinstance(plan, str):
        _say(f"trains as it is: {plan}")
        yield
        return
    from placement_advisor.tf.training.placed_run import PlacedRun

    run = PlacedRun(
        Path(getattr(sys.modules["__main__"], "__file__", None) or "<interactive>"),
        replace(plan, step=None),
        trial_steps=trial_steps,
        profile=None,
        say=_say,
    )
    with run.watching():
        try:
            yield
        finally:
            run.settle()


def apply(step: Any, analysis: str | Path, *inputs: Any, candidate: str | None = None) -> Any:
    """Return a step split as an analysis recommends: by `place`, or `make_parallel`.

    ``step`` and ``inputs`` are those of `place`, ``analysis`` and ``candidate`` those of `placed`.
    A compiled Keras model trains so from now on. Where the analysis recommends no split, the step
    is returned as it is.

    Example::

        step = placement_advisor.apply(model, "advisor-out/train", x, y)

    Raises:
        AdvisorError: there is no analysis, it has no such candidate, or as for these functions.
    """
    from placement_advisor.candidates.batch_split.split_graph import VARIABLES
    from placement_advisor.placing import make_parallel, place

    plan = _plan(analysis, candidate)
    if isinstance(plan, str):
        _say(f"stays as it is: {plan}")
        return step
    if plan.samples is None:
        assert plan.placement is not None, "it splits the layers"
        return place(step, plan.placement, *inputs)
    return make_parallel(
        step,
        plan.groups(),
        plan.samples,
        inputs=inputs,
        placement=plan.placement,
        variables=VARIABLES.get(plan.family, "first"),
    )


def _plan(analysis: str | Path, candidate: str | None) -> SplitPlan | str:
    from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
    from placement_advisor.report.find_analysis import find_analysis
    from placement_advisor.report.split_plan import plan_of_analysis
    from placement_advisor.tf.training.trial import SplitPlan

    found = plan_of_analysis(find_analysis(Path(analysis)), candidate, on_cpus=True)
    if isinstance(found, SplitPlan) and found.family == MIRRORED:
        raise AdvisorError(
            f"{found.label}: a model is made in the scope of its strategy",
            hint="make it in tf.distribute.MirroredStrategy().scope()",
        )
    return found


def _say(text: str) -> None:
    print(f"advisor: {text}", file=sys.stderr, flush=True)


def _handed_over(
    model: Any, inputs: tuple[Any, ...], mode: str | None, output: str | Path | None
) -> str:
    """Write an object of this process as a model file; return its path."""
    from placement_advisor.tf.hand_over import hand_over, name_of

    name = name_of(model)
    beside = Path(defaults.OUTPUT) / name if output is None else Path(output)
    return str(hand_over(model, inputs, mode, beside.with_name(f"{beside.name}.model")))


def _tables(graph: OpGraph, costs: Costs, cluster: Cluster) -> dict[str, CostTable]:
    """Return a table for each device and host.

    Raises:
        AdvisorError: an op has no cost in one of them, or one that is no time; or the cluster has
            no device, or two of one name.
    """
    places = cluster.place_names()
    if not cluster.devices:
        raise AdvisorError("the cluster has no device")
    if len(set(places)) < len(places):
        raise AdvisorError(f"two devices or hosts have one name: {', '.join(places)}")
    if costs is None:
        from placement_advisor.cost.roofline import roofline_by_place

        return dict(roofline_by_place(graph, cluster))
    if isinstance(costs, CostTable):
        tables = dict.fromkeys(places, costs)
    elif not any(isinstance(value, CostTable | Mapping) for value in costs.values()):
        tables = dict.fromkeys(places, _table(costs))  # type: ignore[arg-type]
    else:
        missing = [place for place in places if place not in costs]
        if missing:
            raise AdvisorError(f"costs: none for {missing[0]!r}")
        tables = {place: _table(costs[place]) for place in places}  # type: ignore[arg-type]
    for table in {id(table): table for table in tables.values()}.values():
        for name, cost in table.costs.items():
            if not isinstance(cost.time_ns, int) or not 0 <= cost.time_ns <= MAX_NS:
                raise AdvisorError(
                    f"costs: op {name!r}: {cost.time_ns!r} is not a whole number of ns up to 2^60"
                )
    for op in graph.placed_ops:
        if op.role not in COST_FREE_ROLES:
            bare = next((place for place in places if op.name not in tables[place].costs), None)
            if bare is not None:
                raise AdvisorError(f"costs: op {op.name!r} has none on {bare!r}")
    return tables


def _table(costs: Table) -> CostTable:
    if isinstance(costs, CostTable):
        return costs
    return CostTable(
        costs={
            name: OpCost(time_ns=time_ns, basis=CostBasis.MEASURED)
            for name, time_ns in costs.items()
        }
    )
