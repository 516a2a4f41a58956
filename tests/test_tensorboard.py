"""The profiles of a real analysis in a real TensorBoard process."""

import contextlib
import gzip
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

MODEL = Path(__file__).parent.parent / "sample_models" / "deepconn.py"
START_LIMIT_S = 90


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    output = tmp_path_factory.mktemp("analysis") / "out"
    command = [str(Path(sys.executable).with_name("advisor")), "analyze", str(MODEL)]
    subprocess.run(
        [*command, "--rounds", "5", "--steps", "1", "-o", str(output), "--quiet"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = str(Path(sys.executable).with_name("tensorboard"))
    process = subprocess.Popen(
        [program, "--logdir", str(output / "tensorboard"), "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}/data"
    finally:
        process.kill()
        process.wait()


def read(url: str):
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            with urllib.request.urlopen(url, timeout=60) as answer:
                content = answer.read()
            if content[:2] == b"\x1f\x8b":
                content = gzip.decompress(content)
            return json.loads(content)
        time.sleep(0.5)
    raise AssertionError(f"no answer from {url}")


@pytest.mark.slow
def test_the_profile_tab_shows_a_run_per_candidate_with_ops_and_steps(address):
    assert read(f"{address}/plugins_listing")["profile"]["enabled"]
    profile = f"{address}/plugin/profile"
    assert set(read(f"{profile}/runs")) >= {"single", "towers", "alternating", "batch"}

    hosts = read(f"{profile}/hosts?run=towers&tag=trace_viewer@")
    assert {host["hostname"] for host in hosts} == {"client", "worker-0", "worker-1"}
    trace = read(f"{profile}/data?run=towers&tag=trace_viewer&host=worker-1")
    assert any("Conv2D" in event.get("name", "") for event in trace["traceEvents"])

    overview = read(f"{profile}/data?run=towers&tag=overview_page&host=client")
    steps = next(t for t in overview if t["cols"] and t["cols"][0]["label"] == "Step number")
    assert len(steps["rows"]) > 0
