"""What `advisor doctor --run` found, as text: a line per finding, and whether to trust it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor import __version__
from placement_advisor.analysis.acceptance.finding import Outcome
from placement_advisor.analysis.acceptance.judge import findings_of
from placement_advisor.report.doctor_text import WIDTH
from placement_advisor.report.document import Facts, Section, as_text
from placement_advisor.tf.acceptance.known_step import OPS, End, copies_from
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis.acceptance.observed import Acceptance, PairRun

_OUTCOME, _NAME = 9, 13
_UNTRIED = (
    "untried on GPUs: nobody has told us yet that this ran on some; your bundle is worth an issue, "
    "whatever comes out"
)


def render_acceptance(acceptance: Acceptance, bundle: Path) -> str:
    """Return the text, which ends with trust or what is off."""
    head = f"advisor {__version__}, TensorFlow {acceptance.tensorflow_version}; "
    untried = _UNTRIED if acceptance.has_gpus else ""
    first = Section("", [head + acceptance.description, _known_step(), untried])
    pairs = [Section("", [pair.title, _findings(pair)]) for pair in acceptance.pairs]
    last = Section("", [f"bundle: {bundle}", *_verdict(acceptance, bundle)])
    # A path is there to be copied.
    return f"{as_text([first, *pairs], WIDTH)}\n{as_text([last])}"


def _known_step() -> str:
    there, back = (
        f"{len(copies_from(source))} {word} "
        f"({format_bytes(sum(copy.size_bytes for copy in copies_from(source)))})"
        for source, word in ((End.NEAR, "tensors there"), (End.FAR, "back"))
    )
    return f"known step: {len(OPS)} ops; {there}, {back}"


def _findings(pair: PairRun) -> Facts:
    rows = [(f"{e.outcome.value:<{_OUTCOME}}{e.name}", e.finding) for e in findings_of(pair)]
    return Facts(rows, label_width=_OUTCOME + _NAME)


def _verdict(acceptance: Acceptance, bundle: Path) -> list[str]:
    off: dict[str, list[str]] = {}
    unknown: dict[str, None] = {}
    for pair in acceptance.pairs:
        for each in findings_of(pair):
            if each.outcome is Outcome.OFF:
                off.setdefault(pair.title, []).append(each.name)
            elif each.outcome is Outcome.UNKNOWN:
                unknown[each.name] = None
    if off:
        return [
            *(f"off: {', '.join(names)} ({title})" for title, names in off.items()),
            f"do not trust what is measured here; attach {bundle} to an issue",
        ]
    rest = f"; unknown: {', '.join(unknown)}" if unknown else ""
    return [f"trust: all that can be known here is as it must be{rest}"]
