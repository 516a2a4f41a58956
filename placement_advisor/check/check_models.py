"""Wires `advisor check`: settings -> each model traced, placed, simulated -> compared -> result.

Models are traced side by side, each in a child of its own; one that fails does not stop the
others. The lock file is written as a whole or not at all.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor import defaults
from placement_advisor.analysis import target_costs
from placement_advisor.analysis.tracing import traced_model
from placement_advisor.candidates import references
from placement_advisor.candidates.families import SPLITS
from placement_advisor.check.check_measured import MeasuredCheck, measure, with_measured
from placement_advisor.check.code_lines import CodeLines, code_lines
from placement_advisor.check.judgement import check_step
from placement_advisor.check.lock_file import CONFIG_FILE, lock_text, read_lock
from placement_advisor.check.placements import AUTO, lay_out, moved_back, split_for_check
from placement_advisor.check.problem_codes import CheckResult, ModelResult, Status
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.errors import AdvisorError
from placement_advisor.files.output import holding, output_file, scratch_folder
from placement_advisor.graph.op import Edge, Op
from placement_advisor.graph.op_graph import OpGraph, load_graph
from placement_advisor.machine.testbed_plan import TestbedPlan, plan_testbed, with_network
from placement_advisor.processes.children import Child, preload
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.tf.load.model_source import ModelSource, source_kind, split_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from placement_advisor.check.lock_file import CheckConfig, ModelConfig
    from placement_advisor.check.lock_record import Record
    from placement_advisor.check.placements import BatchSplit
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.testbed.benchmark import ProgressReporter
    from placement_advisor.tf.answers import Traced


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """How to check: some of the models, or all; from graph files alone; how many at a time.

    With ``measure`` placements run as well, one model after the other, on workers with
    ``open_ports`` if need be.
    """

    only: tuple[str, ...] = ()
    graphs_only: bool = False
    measure: bool = False
    open_ports: bool = False
    update: bool = False
    strict: bool = False
    jobs: int | None = None
    time_limit_s: float = defaults.TIME_LIMIT_S


def check_models(
    config: CheckConfig, options: CheckOptions, watcher: ProgressReporter
) -> CheckResult:
    """Check the models of a project against its lock file; with ``update`` write that anew.

    It is written only if every model could be traced and placed.

    Raises:
        AdvisorError: the lock file cannot be read or written, the hardware means nothing, or a
            model is asked for that is not configured.
        TestbedError: what is measured on would be open to the network, and that is not accepted.
    """
    models = _chosen(config, options.only)
    hardware = _hardware(config)
    lock_file = Path(_from_here(config.lock_file))
    locked = read_lock(lock_file)
    plan = None
    if options.measure:
        plan = with_network(
            plan_testbed(None, len(hardware.cluster.device_names())),
            open_ports=options.open_ports,
            instead="without --measure placements are only predicted",
            note=watcher.note,
        )
    with ExitStack() as stack:
        put = None
        if options.update:
            put = stack.enter_context(output_file(lock_file, option="--config"))
        scratch = stack.enter_context(scratch_folder())
        if not options.graphs_only:
            watcher.working("importing TensorFlow", 0, 1)
            preload()
            ahead = stack.enter_context(ThreadPoolExecutor(1))
            ahead.submit(_compile, hardware.cluster, {model.placement for model in models})
        pool = ThreadPoolExecutor(min(len(models), options.jobs or os.cpu_count() or 1))
        stack.callback(pool.shutdown, cancel_futures=True)
        checking = _Checking(config, hardware, locked, options, scratch, watcher)
        stack.callback(checking.stop)
        results = tuple(pool.map(checking.result, models))
        if plan is not None:
            results = tuple(
                checking.measured(model, found, plan)
                for model, found in zip(models, results, strict=True)
            )
        if put is not None:
            missing = [result.model for result in results if result.after is None]
            if missing:
                watcher.note(
                    f"{lock_file} stays as it was: {', '.join(missing)} could not be checked"
                )
            else:
                kept = locked if options.only else {}
                text = lock_text(kept | {r.model: r.after for r in results if r.after is not None})
                put(holding(text))
                watcher.note(f"{lock_file} written")
    return CheckResult(lock_file=str(lock_file), results=results, strict=options.strict)


class _Placed(NamedTuple):
    """A step of today; what is needed to run it is in the folder ``bundle``."""

    graph: OpGraph
    placement: Placement
    bundle: Path


class _Checking:
    """Checks one model after the other, or several at once, until it is stopped."""

    def __init__(
        self,
        config: CheckConfig,
        hardware: target_costs.TargetHardware,
        locked: Mapping[str, Record],
        options: CheckOptions,
        scratch: Path,
        watcher: ProgressReporter,
    ) -> None:
        self._config, self._hardware, self._locked = config, hardware, locked
        self._options, self._scratch, self._watcher = options, scratch, watcher
        self._children: list[Child] = []
        self._placed: dict[str, _Placed] = {}
        self._starting = Lock()
        self._stopped = False

    def stop(self) -> None:
        """End what is under way."""
        with self._starting:
            self._stopped = True
        for child in self._children:
            child.close()

    def result(self, model: ModelConfig) -> ModelResult:
        """Check a model; what a user can cause becomes a part of the result."""
        before = self._locked.get(model.path)
        found = ModelResult(
            model=model.path,
            placement=model.placement,
            place=model.place,
            status=Status.COULD_NOT_RUN,
            before=before,
        )
        try:
            graph, asked, lines, split, bundle = self._step(model)
            result, placement = check_step(
                found,
                model,
                graph,
                asked,
                lines,
                split=split,
                root=Path(_from_here(self._config.root)),
                hardware=self._config.hardware,
                cluster=self._hardware.cluster,
                update=self._options.update,
            )
            if placement is not None and split is None and bundle is not None:
                self._placed[model.path] = _Placed(graph, placement, bundle)
            return result
        except AdvisorError as error:
            return replace(found, error=error.message, hint=error.hint)

    def _step(
        self, model: ModelConfig
    ) -> tuple[OpGraph, Mapping[str, str] | None, CodeLines, BatchSplit | None, Path | None]:
        """Return the step of a model with the devices it asks for and its lines.

        Behind them are its batch split, and the folder of what is needed to run it.
        """
        if not self._options.graphs_only:
            traced, split, bundle = self._traced(model)
            lines = code_lines(traced.graph, traced.stack_of, traced.created_at, self._config.root)
            return traced.graph, traced.requested_device_of, lines, split, bundle
        if model.graph is None:
            raise AdvisorError(
                "no graph file is configured, and --graphs-only runs no model code",
                hint='write one with advisor trace, and name it: graph = "ranker.graph.json.gz"',
            )
        file = load_graph(Path(_from_here(self._config.root / model.graph)))
        return file.graph, file.requested_device_of, CodeLines(), None, None

    def measured(self, model: ModelConfig, found: ModelResult, plan: TestbedPlan) -> ModelResult:
        """Run what was checked beside the locked placement, where there is one."""
        if model.placement in SPLITS and found.after is not None:
            why = "advisor analyze runs splits of the batch, a check does not"
            return with_measured(found, MeasuredCheck(devices="", unknown=why))
        placed = self._placed.get(model.path)
        if placed is None or found.before is None:
            return found
        moves = () if found.difference is None else found.difference.moves
        cluster = self._hardware.cluster
        self._watcher.note(f"measuring {model.path}")
        scratch = placed.bundle.with_name(f"{placed.bundle.name}-run")
        scratch.mkdir()
        told = measure(
            placed.graph,
            placed.placement,
            moved_back(placed.graph, placed.placement, moves, cluster.place_names()),
            cluster,
            plan,
            placed.bundle,
            scratch,
            model.limits.max_step_regression,
            self._watcher,
        )
        return with_measured(found, told)

    def _traced(self, model: ModelConfig) -> tuple[Traced, BatchSplit | None, Path]:
        """Trace a model, and split its batch if its placement does.

        What is needed to run it goes into a folder, if it is to run.
        """
        path, name = split_name(_from_here(self._config.root / model.path))
        source_kind(Path(path))
        source = ModelSource(
            path=path,
            name=name,
            mode=model.mode,
            batch_size=model.batch_size,
            outputs=(),
            time_limit_s=self._options.time_limit_s,
            capture_timeout_s=self._options.time_limit_s,
            arguments=model.args,
        )
        with self._starting:
            if self._stopped:
                raise AdvisorError("stopped")
            number = len(self._children)
            child = Child(f"loader {number}")
            self._children.append(child)
        bundle = self._scratch / f"bundle-{number}"
        bundle.mkdir()
        folder = bundle if self._options.measure else None
        with child:
            traced, split = traced_model(source, folder, child, self._watcher), None
            if model.placement in SPLITS:
                devices = len(self._hardware.cluster.devices)
                time_limit_s = self._options.time_limit_s
                split = split_for_check(model.placement, traced, devices, child, time_limit_s)
            return traced, split, bundle


def _chosen(config: CheckConfig, only: Sequence[str]) -> tuple[ModelConfig, ...]:
    """Return the models to check, in the order of their names.

    Raises:
        AdvisorError: one is not configured.
    """
    by_name = {model.path: model for model in sorted(config.models, key=lambda each: each.path)}
    if not only:
        return tuple(by_name.values())
    chosen: dict[str, ModelConfig] = {}
    for words in only:
        found = {
            name: model for name, model in by_name.items() if words in (name, split_name(name)[0])
        }
        if not found:
            near = get_close_matches(words, by_name, 1)
            raise AdvisorError(
                f"{words}: not among the models in {CONFIG_FILE}",
                hint=f"did you mean {near[0]}?" if near else f"there are {', '.join(by_name)}",
            )
        chosen |= found
    return tuple(chosen[name] for name in by_name if name in chosen)


def _hardware(config: CheckConfig) -> target_costs.TargetHardware:
    """Return what the hardware is, a cluster file as it is reached from here.

    Raises:
        AdvisorError: it means nothing; the message says where it stands.
    """
    is_file = config.hardware.endswith(".toml")
    words = _from_here(config.root / config.hardware) if is_file else config.hardware
    try:
        return target_costs.read_target_hardware(words, None)
    except AdvisorError as error:
        file = _from_here(config.root / config.place.file)
        message = f"{file}, line {config.place.line}: hardware: {error.message}"
        raise AdvisorError(message, hint=error.hint) from None


def _compile(cluster: Cluster, placements: Set[str]) -> None:
    """Place and simulate two ops: on a fresh machine that compiles the code for it, in seconds.

    They are had for nothing while TensorFlow is imported.
    """
    ops = [Op(name=name, kind="NoOp", layer=name, output_bytes=(1,)) for name in "ab"]
    graph = OpGraph(ops, [Edge(producer="a", consumer="b", port=0, size_bytes=1)])
    costs = roofline_by_place(graph, cluster)
    placement = references.on_device(graph, cluster.device_names()[0])
    Simulator(graph, costs, cluster).step_ns(placement)
    if AUTO in placements:
        lay_out(AUTO, Path(), graph, None, costs, cluster, {})


def _from_here(path: Path) -> str:
    return os.path.relpath(path)
