"""What is in the bundle, and what must not be."""

from __future__ import annotations

import gzip
import json
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import jsonschema
import pytest
from gpu_runs import NUMBERS, acceptance, run

from placement_advisor.analysis.acceptance import AcceptanceCheck, CheckOutcome
from placement_advisor.machine.machine_facts import examine
from placement_advisor.profile.gpu_planes import read_gpu_steps
from placement_advisor.profile.xplane_schema import new_space
from placement_advisor.report.machine_texts import write_bundle
from placement_advisor.results.contracts import load_schema
from placement_advisor.results.machine import Acceptance

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis.acceptance import DevicePair

PROFILE = "profiles/GPU-0-and-GPU-1/client.xplane.pb"
# What a profiler may write down of a machine.
PRIVATE = (
    *("ann", "gpu-box", "/home/ann/model.py", "10.1.2.3", "fe80::1ff:fe23:4567:890a"),
    "/var/folders/x7/tmp",
)


@pytest.fixture
def pair(tmp_path: Path) -> DevicePair:
    """A run on GPUs whose profile holds private texts wherever there is room for one."""
    found = run(tmp_path)
    assert found.files is not None
    path, space = found.files.client, new_space()
    space.ParseFromString(path.read_bytes())
    for field in (space.hostnames, space.errors, space.warnings):
        field.extend(PRIVATE)
    for plane in space.planes:
        for text in PRIVATE:
            number = max(plane.event_metadata, default=0) + 1
            plane.event_metadata[number].name = f"open {text}"
            plane.event_metadata[number].metadata = text.encode()
            plane.event_metadata[number].display_name = text
            plane.stat_metadata[900].name = text
            plane.stats.add(metadata_id=900, str_value=f"at {text}")
            plane.stats.add(metadata_id=900, bytes_value=text.encode())
            plane.lines.add(name=text, display_name=text)
    # A field of a later TensorFlow, which the schema here lacks: number 99, a text.
    path.write_bytes(space.SerializeToString() + b"\x9a\x06\x07gpu-box")
    return found


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as bundle:
        return {name: bundle.read(name) for name in bundle.namelist()}


def bundle_of(pair: DevicePair, folder: Path) -> dict[str, bytes]:
    path = folder / "it.zip"
    seen = acceptance(pair)
    write_bundle(path, Acceptance.of(seen, folder / "gpu-box" / "it.zip"), seen, examine())
    return contents(path)


def test_it_holds_what_it_says_and_nothing_else(pair: DevicePair, tmp_path: Path) -> None:
    found = bundle_of(pair, tmp_path)
    assert set(found) == {
        "README.txt",
        "findings.json",
        "machine.json",
        "graph.json.gz",
        PROFILE,
    }
    for name, schema in (("findings.json", "acceptance"), ("machine.json", "doctor")):
        jsonschema.Draft202012Validator(load_schema(schema)).validate(json.loads(found[name]))


def test_no_private_text_is_in_any_file_of_it(pair: DevicePair, tmp_path: Path) -> None:
    assert pair.files is not None
    raw = pair.files.client.read_bytes()
    assert all(text.encode() in raw for text in PRIVATE)
    problem = f"{tmp_path}/p.xplane.pb of ann on gpu-box at 10.1.2.3 cannot be read"
    findings = (AcceptanceCheck("run", CheckOutcome.OFF, problem),)
    found = bundle_of(replace(pair, findings=findings), tmp_path)
    found["graph.json.gz"] = gzip.decompress(found["graph.json.gz"])
    for name, content in found.items():
        left = [text for text in (*PRIVATE, str(tmp_path)) if text.encode() in content]
        # Three letters stand in other words too: only the names are private.
        left = [text for text in left if text != "ann" or b" ann " in content]
        assert left == [], name
    findings = json.loads(found["findings.json"])["pairs"][0]["findings"]
    assert findings[0]["finding"] == "PATH of user on machine at ADDRESS cannot be read"


def test_its_profile_says_the_same_as_the_raw_one(pair: DevicePair, tmp_path: Path) -> None:
    path = tmp_path / "scrubbed.xplane.pb"
    path.write_bytes(bundle_of(pair, tmp_path)[PROFILE])
    profile = read_gpu_steps(path, NUMBERS)
    assert pair.files is not None
    assert profile == read_gpu_steps(pair.files.client, NUMBERS)


def test_a_pair_that_did_not_run_has_no_profile(pair: DevicePair, tmp_path: Path) -> None:
    assert PROFILE not in bundle_of(replace(pair, files=None), tmp_path)
