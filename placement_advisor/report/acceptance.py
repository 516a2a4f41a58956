"""What `advisor doctor --run` found: as text, and as a bundle to look into it elsewhere."""

from __future__ import annotations

import json
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.analysis.acceptance import CheckOutcome
from placement_advisor.files.contract import plain
from placement_advisor.files.without_names import WithoutNames
from placement_advisor.profile.saved_profiles import scrubbed
from placement_advisor.report.doctor_text import WIDTH
from placement_advisor.report.document import Facts, Section, as_text
from placement_advisor.results.doctor import Doctor
from placement_advisor.tf.known_step import COPIES, OPS
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from placement_advisor.analysis import acceptance as seen
    from placement_advisor.machine.doctor.facts import Facts as MachineFacts
    from placement_advisor.results.acceptance import Acceptance, Finding

_OUTCOME, _NAME = 9, 13
_UNTRIED = (
    "untried on GPUs: nobody has told us yet that this ran on some; your bundle is worth an issue, "
    "whatever comes out"
)
_README = """What `advisor doctor --run` saw of a known step; see docs/acceptance.md of the project.

findings.json            versions, and findings with their figures
machine.json             what `advisor doctor --json` says of the machine of the command
graph.json.gz            the op graph of the known step
profiles/PAIR/*.xplane.pb  raw profiles, one of the client and one for each worker

Names of users and hosts, addresses and paths have been taken out, from profiles too.
"""


def render_acceptance(found: Acceptance) -> str:
    """Return the text: a line per finding, at the end trust or what is off."""
    step = (
        f"known step: {len(OPS)} ops; {len(COPIES)} tensors cross "
        f"({format_bytes(sum(copy.size_bytes for copy in COPIES))})"
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


def _row(found: Finding) -> tuple[str, str]:
    return f"{found.outcome.value:<{_OUTCOME}}{found.name}", found.finding


def _verdict(found: Acceptance) -> list[str]:
    words = []
    for pair in found.pairs:
        off = [each.name for each in pair.findings if each.outcome is CheckOutcome.OFF]
        words += [f"off: {', '.join(off)} ({pair.near} and {pair.far})"] if off else []
    if words:
        return [*words, f"do not trust what is measured here; attach {found.bundle} to an issue"]
    every = (each for pair in found.pairs for each in pair.findings)
    unknown = dict.fromkeys(each.name for each in every if each.outcome is CheckOutcome.UNKNOWN)
    rest = f"; unknown: {', '.join(unknown)}" if unknown else ""
    return [f"trust: all that can be known here is as it must be{rest}"]


def write_bundle(
    path: Path, found: Acceptance, acceptance: seen.Acceptance, facts: MachineFacts
) -> None:
    """Write what was found, with what it was found in, without names.

    Raises:
        OSError: it cannot be written.
    """
    names = WithoutNames(acceptance.private_names)
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
