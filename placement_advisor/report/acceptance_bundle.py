"""The bundle of `advisor doctor --run`: what it takes to look into it elsewhere, without names."""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_advisor.files.contract import plain
from placement_advisor.files.without_names import WithoutNames
from placement_advisor.profile.xspace.scrub import scrubbed
from placement_advisor.results import acceptance as published
from placement_advisor.results.doctor import Doctor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.analysis.acceptance.observed import Acceptance, PairRun
    from placement_advisor.machine.doctor.facts import Facts

_README = """What `advisor doctor --run` saw of a known step; see docs/acceptance.md of the project.

findings.json            versions, findings, and the figures that they rest on
machine.json             what `advisor doctor --json` says of the machine of the command
graph.json.gz            the op graph of the known step
profiles/PAIR/*.xplane.pb  raw profiles, one of the client and one for each worker

Names of users and hosts, addresses and paths have been taken out, from profiles too.
"""


def write_bundle(path: Path, acceptance: Acceptance, facts: Facts, named: Path) -> None:
    """Write the bundle; ``named`` is what it is called when it is complete.

    Raises:
        OSError: it cannot be written.
    """
    names = WithoutNames(acceptance.private_names)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("README.txt", _README)
        findings = plain(published.Acceptance.of(acceptance, Path(named.name)))
        bundle.writestr("findings.json", _json_text(names.json(findings)))
        bundle.writestr("machine.json", _json_text(names.json(plain(Doctor.of(facts)))))
        with tempfile.TemporaryDirectory() as scratch:
            graph = Path(scratch) / "graph.json.gz"
            acceptance.graph.save(graph)
            bundle.write(graph, graph.name)
        for pair in acceptance.pairs:
            folder = f"profiles/{names.text(pair.title).replace(' ', '-').replace(':', '-')}"
            for process, profile in _profiles(pair):
                file = names.text(process).replace(":", "-")
                bundle.writestr(f"{folder}/{file}.xplane.pb", scrubbed(profile, names.text))


def _profiles(pair: PairRun) -> Iterator[tuple[str, Path]]:
    if pair.files is not None:
        yield "client", pair.files.client
        yield from pair.files.devices.items()


def _json_text(content: Any) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
