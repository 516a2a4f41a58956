"""What each code of a check means, when it is found, what to do: for `advisor explain` and SARIF.

The code of a finding is explained on that finding's page; here it has what SARIF says of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.check.check_result import Status
from placement_advisor.check.problem import Code

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A code in words: a title, when it is found, what to do."""

    title: str
    found: str
    action: str


EXPLANATIONS: Mapping[str, Explanation] = {
    Code.BACKWARD_LEFT: Explanation(
        title="The backward pass has left the device of its forward pass",
        found="Layers still ask for their device, and their backward pass, which ran there, does "
        "not any more. It has no device and runs on the default one: a tape took the place of "
        "tf.gradients, or gradients are taken in a tf.function of their own. Or a tape takes them "
        "in a tf.device scope, whose device all of them have. The line is the one that takes them, "
        "or that of the scope.",
        action="Take gradients with tf.gradients(loss, variables) inside the tf.function, which "
        "puts them beside their forward ops, or use placement_advisor.place(step, placement).",
    ),
    Code.SCOPE_CHANGED: Explanation(
        title="Layers are in another tf.device scope, or in none",
        found="The step is placed as written, and most ops of a layer's forward pass, or its "
        "variables, are on another device than the lock file has. Either no scope holds them any "
        "more, which puts them on the default device, or another one does. The line is that of "
        "the scope, or the first that lost its own. Which effects come from it is found by "
        "simulating the step with these layers put back.",
        action="Put the lines back into the scope that they had, or accept the move.",
    ),
    Code.PLACEMENT_CHANGED: Explanation(
        title="The placement that is configured is another one",
        found="The settings name another placement than the lock file has, or the placement file "
        "puts layers of the same graph elsewhere.",
        action="Take the placement back, or accept it.",
    ),
    Code.LAYERS_CHANGED: Explanation(
        title="Layers are new, gone, or made of other ops or sizes",
        found="The step became worse than it may, and not by layers that an edit moved. Layers "
        "are told apart by name, ops and sizes. Rules and searches place by layers: for them a "
        "name scope that is gone is such a change, too. Named are the layers that take longer and "
        "the tensors that cross; the line is that of what weighs most. A size that all layers "
        "share, such as the batch, changes all of them.",
        action="See whether they need to be so. Else put the layer or the name scope back, or "
        "split the model anew with advisor analyze.",
    ),
    Code.DOES_NOT_FIT: Explanation(
        title="The placement no longer fits the model",
        found="A layer has no device in the placement file, a rule no longer applies, or "
        "tf.device scopes name more devices than there are.",
        action="Place the model anew with advisor analyze, or edit the placement file.",
    ),
    Code.OUT_OF_MEMORY: Explanation(
        title="A device has too little memory for the step",
        found="The simulated peak of the device is above its memory. No tolerance.",
        action="Make the batch smaller, or move layers to a device that has memory left.",
    ),
    Code.OVER_BUDGET: Explanation(
        title="The step costs more than its budget in pyproject.toml",
        found="More bytes cross than max_transfer_bytes, or a simulated peak is above "
        "max_peak_memory. No tolerance.",
        action="Let less cross or be held, or raise the budget that is named.",
    ),
    Code.MOVED: Explanation(
        title="A layer runs on another device than before",
        found="Most ops of its forward pass, its backward pass or its variables do, under a "
        "placement as written or in a file, it is not shown to be better, and no scope or file "
        "tells why.",
        action="Put it back where it was, or accept the move.",
    ),
    Code.NO_KERNEL: Explanation(
        title="An op on a GPU has no kernel there",
        found="A kind of op is placed on a GPU that has no kernel for it, and was not before. It "
        "runs on the host, and its tensors are copied there and back. advisor explain PA102 has "
        "more.",
        action="Take it out of the device scope, best into the input pipeline.",
    ),
    Code.COPIES: Explanation(
        title="More tensors cross between devices in a step",
        found="The simulated step has more copies than the locked one. No tolerance.",
        action="Compute what is read there on that side, or send one tensor for several.",
    ),
    Code.BYTES: Explanation(
        title="More bytes cross between devices in a step",
        found="By more than 1 % of what the lock file has.",
        action="Cut where less crosses: before a layer that widens, after one that narrows.",
    ),
    Code.SLOWER: Explanation(
        title="The simulated step takes longer",
        found="By more than 5 %, or max_step_regression, predicted for the same hardware by the "
        "same versions of TensorFlow and the advisor.",
        action="See whether the layers named need to be that heavy, or split the model anew with "
        "advisor analyze.",
    ),
    Code.MEMORY: Explanation(
        title="A device needs more memory at its peak",
        found="The simulated peak is higher by more than 5 % than the lock file has it.",
        action="See what is kept longer or is larger than before. A smaller batch needs less.",
    ),
    Code.STANDING: Explanation(
        title="The placement no longer pays as it did",
        found="Compared with one device alone it was predicted to be faster, and is now within "
        "doubt or no faster; and its ratio to one device grew by more than the tolerance.",
        action="Ask advisor analyze which placement pays now.",
    ),
    Code.NOT_LOCKED: Explanation(
        title="The lock file does not have the model",
        found="pyproject.toml names a model that placements.lock.json does not have.",
        action="Write it with advisor check --update, and commit what that writes.",
    ),
    Code.MEASURED_SLOWER: Explanation(
        title="The placement was measured to be slower than the locked one",
        found="With --measure both take turns on the same devices: two races say that today's "
        "takes longer than it may, by the whole interval and by more than the noise.",
        action="Put the layers back where they were.",
    ),
    Code.DOES_NOT_RUN: Explanation(
        title="The step does not run under its placement",
        found="With --measure TensorFlow refused it, or its results are others than those of one "
        "device.",
        action="Run advisor analyze on the model, which tells more.",
    ),
    Status.COULD_NOT_RUN: Explanation(
        title="The model could not be checked",
        found="It cannot be imported or traced, took too long, or what is configured for it is "
        "not there. The other models are checked all the same.",
        action="Do what the message says.",
    ),
    Status.INCONCLUSIVE: Explanation(
        title="A measurement does not tell",
        found="With --measure the machine was too noisy, the difference too small, or there are "
        "too few devices.",
        action="Run it again on a quieter machine. With --strict this is a failure.",
    ),
}


def page(code: str) -> str:
    """Return what is to be said of a code, as Markdown."""
    found = EXPLANATIONS[code]
    return (
        f"# {code}\n\n{found.title}.\n\n## When it is found\n\n{found.found}\n\n"
        f"## What to do\n\n{found.action}\n\n"
        "What can be accepted, and with which tolerance, is in docs/ci.md under *What fails*.\n"
    )
