"""A split of the step of a program that runs, verified before it takes that step's place.

Verified is what an analysis verifies, by the same rules: steps on the batches that were seen, on
copies of all variables, in sessions of their own. So nothing of the program's changes: neither its
variables, nor its iterators, nor what its random numbers will be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.errors import BatchSplitError, PlacementError
from placement_advisor.graph.placement import placed_ops, read_placement
from placement_advisor.tf.failures import run_failure
from placement_advisor.tf.own_step.parallel import split_batch
from placement_advisor.tf.own_step.place import devices_here, fitting
from placement_advisor.tf.own_step.real_devices import real_devices
from placement_advisor.tf.place import placer
from placement_advisor.tf.place.placed_step import PlacedStep, Runtime
from placement_advisor.tf.verify.verifier import Verifier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.measurement.verification import Verification
    from placement_advisor.tf.split.split_step import SplitStep
    from placement_advisor.tf.trace.bundle import Bundle
    from placement_advisor.tf.trace.flat_step import FlatStep
    from placement_advisor.tf.trace.tracer import TracedStep
    from placement_advisor.tf.training.split_plan import SplitPlan

_LOCAL = "/job:localhost/replica:0/task:0/device:"
# An analysis has verified more of them. A mistake that is a step late shows in the second.
_STEPS = 2
# Of a verified step. Judgement: what takes longer is better seen to fail.
_LIMIT_S = 600.0


class LiveSplit:
    """A step with a split of it: ``program`` is what runs, ``placement`` where, by real devices.

    ``specs`` has the inputs of the program by name; `divided` makes them of those of the step.
    """

    def __init__(self, live: TracedStep, plan: SplitPlan) -> None:
        """Split a step as a plan says. Nothing runs, and nothing moves.

        Raises:
            AdvisorError: it is not the graph that was analysed, a device is not here, or its batch
                cannot be split.
        """
        self.live = live
        self._here = devices_here()
        if plan.samples is None:
            assert plan.placement is not None, "a plan has a placement or shares of the batch"
            placement, names = fitting(plan.placement, live)
            self.placement = placement.renamed(real_devices(names, self._here, {}))
            self.program: FlatStep | SplitStep = live.flat
            flat = tf.nest.flatten(live.loaded.specs)
            self.specs = dict(zip(live.flat.inputs, flat, strict=True))
            self._split: SplitStep | None = None
            return
        assert plan.single is not None, "shares of the batch are those of an analysis"
        read_placement(plan.single, live.graph, live.traced_as())
        self._split, self.placement = split_batch(
            live,
            groups=plan.groups(),
            ratios=plan.samples,
            within=plan.placement,
            family=plan.family if plan.placement is None else BATCH,
            real=real_devices(plan.devices, self._here, {}),
        )
        self.program, self.specs = self._split, self._split.specs

    def divided(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the inputs of the program."""
        return inputs if self._split is None else self._split.divided(inputs)

    def verified(self) -> Verification:
        """Compare the split with the step on one device.

        Raises:
            AdvisorError: it computes something else, would train otherwise, or cannot run.
        """
        live = self.live
        whole = live.flat.bundle(live.batches())
        bundle = whole if self._split is None else self._split.bundle()
        if bundle.split is not None and bundle.split.takes_statistics:
            raise BatchSplitError(
                "each share of the batch would be normalized by statistics of its own, which is "
                "another training"
            )
        first = next(iter(self.placement.device_of.values()))
        alone = dict.fromkeys((op.name for op in placed_ops(live.graph)), first)
        try:
            found = self._compared(bundle, whole, alone)
        except (tf.errors.OpError, ValueError) as error:
            raise PlacementError(f"the split cannot run: {run_failure(error).message}") from None
        if found.wrong:
            raise PlacementError(
                f"the split computes something else than your own step: {found.wrong} is off by "
                f"{found.relative_difference:.2g} of its size"
            )
        return found

    def _compared(self, bundle: Bundle, whole: Bundle, alone: Mapping[str, str]) -> Verification:
        runtime = Runtime(
            address="",
            logical_cpus=sum(device.startswith("CPU:") for device in self._here),
            on_gpus=any(device.startswith("GPU:") for device in self._here),
        )

        def place(bundle: Bundle, device_of: Mapping[str, str]) -> PlacedStep:
            devices = {op: _LOCAL + device for op, device in device_of.items()}
            placed = placer.placed_graph(bundle, devices, f"{_LOCAL}CPU:0")
            return PlacedStep(bundle, placed, runtime, _LIMIT_S)

        device_of = self.placement.device_of
        verifier = Verifier(place, whole, alone)
        verifier.begin(_STEPS)
        ready = place(bundle, device_of)
        try:
            return verifier.verify("split", bundle, device_of, ready, _STEPS)
        finally:
            ready.close()
