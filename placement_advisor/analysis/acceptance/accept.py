"""`advisor doctor --run`: the known step on each two devices that are here.

It is loaded, traced, placed, run and profiled as the model of an analysis is, and its profile read
by the same reader.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor import defaults
from placement_advisor.analysis.acceptance.expected_times import (
    Cards,
    cards_here,
    times_on_cards,
    times_on_cores,
)
from placement_advisor.analysis.acceptance.observed import Acceptance, PairRun
from placement_advisor.analysis.hosts import connect
from placement_advisor.analysis.traced_model import traced_model
from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.graph.placement import Placement, placed_ops
from placement_advisor.machine.doctor.finding import DEVICES
from placement_advisor.machine.testbed_plan import (
    TestbedKind,
    plan_testbed,
    with_load,
    with_network,
)
from placement_advisor.machine.this_machine import gpu_count
from placement_advisor.processes.call_failure import CallFailure
from placement_advisor.processes.children import Child, preload
from placement_advisor.remote_hosts.host_lock import user_name
from placement_advisor.remote_hosts.launched_service import LOCALHOST
from placement_advisor.testbed.testbed import STEP, Testbed
from placement_advisor.testbed.trial import Entry, SilentWatcher, Trial
from placement_advisor.tf.acceptance.known_step import MODEL, End, end_of, outputs
from placement_advisor.tf.calls import runner
from placement_advisor.tf.load.model_source import ModelSource

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from placement_advisor.analysis.hosts import ConnectedHosts, HostsAsked
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.testbed_plan import TestbedPlan
    from placement_advisor.testbed.trial import Watcher

_SOURCE = ModelSource(
    path=str(MODEL),
    name=None,
    mode=None,
    batch_size=None,
    outputs=(),
    time_limit_s=defaults.TIME_LIMIT_S,
)
_INSTEAD = "two GPUs need none"


def accept(
    hosts: HostsAsked | None, open_ports: bool, scratch: Path, watcher: Watcher
) -> Acceptance:
    """Run the known step on each two devices of ``hosts``, or of this machine; profiles stay.

    Raises:
        AdvisorError: the devices cannot be set up.
    """
    with ExitStack() as stack:
        connected = None
        if hosts is None:
            plan = _plan_here(open_ports, watcher)
        watcher.working("importing TensorFlow", 0, 1)
        preload()
        if hosts is not None:
            connected = connect(hosts, stack, watcher)
            plan = connected.plan
        bundle = scratch / "bundle"
        bundle.mkdir()
        watcher.working("tracing the known step", 0, 1)
        with Child("loader") as loader:
            graph = traced_model(_SOURCE, bundle, loader, SilentWatcher()).graph
        site = None if connected is None else connected.site(scratch, stack)
        testbed = Testbed(plan, scratch=scratch, site=site)
        stack.callback(testbed.close)
        testbed.add_program(STEP, bundle, graph)
        watcher.working("starting devices", 0, 1)
        testbed.start()
        return Acceptance(
            testbed=plan.kind.value,
            description=plan.description,
            tensorflow_version=version("tensorflow"),
            graph=graph,
            pairs=_run_all(plan, graph, testbed, watcher),
            has_gpus=plan.on_gpus,
            private_names=_private_names(connected),
        )


def _plan_here(open_ports: bool, watcher: Watcher) -> TestbedPlan:
    """Return all GPUs, or two workers where there are fewer than two."""
    plan = plan_testbed(None, max(DEVICES, gpu_count()))
    if plan.not_run is not None:
        raise TestbedError(
            f"nothing to run on: {plan.not_run}", hint="`advisor doctor` says what is here"
        )
    plan = with_network(plan, open_ports=open_ports, instead=_INSTEAD, note=watcher.note)
    return with_load(plan, watcher.note)


def _run_all(
    plan: TestbedPlan, graph: OpGraph, testbed: Testbed, watcher: Watcher
) -> tuple[PairRun, ...]:
    trial = Trial(testbed, steps=1, watcher=watcher)
    cards = cards_here() if plan.kind is TestbedKind.GPUS else None
    watcher.working("timing products", 0, 1)
    product_ns = {} if plan.on_gpus else trial.speed()
    pairs = planned_pairs(plan, graph, cards, product_ns)
    found = []
    for done, planned in enumerate(pairs):
        watcher.working("running the known step", done, len(pairs), planned.title)
        found.append(_run(planned, testbed, trial))
    return tuple(found)


def planned_pairs(
    plan: TestbedPlan, graph: OpGraph, cards: Cards | None, product_ns: Mapping[str, int]
) -> list[PairRun]:
    """Return what is to run on each two devices, and what must come of it.

    ``cards`` are GPUs of one process, None if there are none: of those of hosts, each in a process
    of its own, nothing is known. ``product_ns`` is what a product takes on cores.
    """
    found = []
    for (first, near), (second, far) in combinations(enumerate(plan.devices), DEVICES):
        device_at = {End.NEAR: near.name, End.FAR: far.name}
        planned = PairRun(
            device_at=device_at,
            device_of={op.name: device_at[end_of(op.name)] for op in placed_ops(graph)},
            expected=times_on_cores(device_at, product_ns)
            if cards is None
            else times_on_cards(device_at, cards, graph),
            gpus=None if cards is None else cards.pair(first, second),
        )
        found.append(planned)
    return found


def _run(planned: PairRun, testbed: Testbed, trial: Trial) -> PairRun:
    """Run the known step on two devices; whatever fails becomes a part of what was found."""
    placement = Placement(
        label=planned.title.replace(" ", "-"),
        family="known",
        device_of=planned.device_of,
        rationale="what `known_step` says",
    )
    try:
        testbed.start()  # The pair before may have taken it down.
        prepared = testbed.prepare(placement.label, placement.device_of, STEP)
        if isinstance(prepared, CallFailure):
            return replace(planned, problem=prepared.message)
        found = replace(planned, prepared=prepared)
        computed = testbed.call(runner.results, placement.label, 1)
        if isinstance(computed, CallFailure):
            return replace(found, problem=computed.message)
    except AdvisorError as error:
        return replace(planned, problem=error.message)
    wrong = tuple(
        name
        for (name, right), seen in zip(outputs().items(), computed.outputs, strict=True)
        if not np.array_equal(seen, right)
    )
    entry = Entry(placement=placement, bench=testbed, prepared=prepared)
    step_ns, problem = None, None
    try:
        step_ns = trial.examine(entry)
    except AdvisorError as error:  # The profile cannot be read.
        problem = error.message
    if entry.failure is None:
        testbed.call(runner.discard, placement.label)
    else:
        problem = entry.failure.message
    return replace(
        found,
        problem=problem,
        wrong_outputs=wrong,
        profiled_steps=entry.profiled_steps,
        step_ns=step_ns,
        profile=entry.profile,
        files=entry.files,
    )


def _private_names(connected: ConnectedHosts | None) -> dict[str, str]:
    """Return what stands for the names of the user, of this machine, and of hosts."""
    names = {user_name(): "user", socket.gethostname(): "machine", socket.getfqdn(): "machine"}
    if connected is not None:
        for number, (host, share) in enumerate(
            zip(connected.hosts, connected.plan.hosts, strict=True), start=1
        ):
            names |= {host.facts.host_name: f"host{number}", share.address: f"address{number}"}
            names[share.name] = f"host{number}"
    return {name: word for name, word in names.items() if name != LOCALHOST}
