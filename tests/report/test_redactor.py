from __future__ import annotations

import pytest

from placement_advisor.report.machine_texts import Redactor

NAMES = Redactor({"ann": "user", "box": "machine", "box.lab.org": "machine", "a": "host1"})


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("/home/ann/m.py:3 failed", "PATH:3 failed"),
        ("~/m/model.py, '/tmp/x-1/y'", "PATH, 'PATH'"),
        ("file:/srv/data/x", "file:PATH"),
        ("10.0.0.2:7600 and ::1", "ADDRESS:7600 and ADDRESS"),
        ("[2001:db8::17]:80", "[ADDRESS]:80"),
        ("box.lab.org, box and boxes", "machine, machine and boxes"),
        ("a:0 → b:0", "host1:0 → b:0"),
        ("ann_shift", "ann_shift"),
    ],
)
def test_names_addresses_and_paths_are_taken_out(text: str, rest: str) -> None:
    assert NAMES.text(text) == rest


@pytest.mark.parametrize(
    "text",
    [
        "/job:worker/replica:0/task:1/device:CPU:0",
        "/device:GPU:0",
        "/host:CPU",
        "far/product_1:MatMul",
        "void Eigen::internal::Kernel<float, 2>(int)",
        "tensorflow 2.21.0, driver 535.104.05",
        "took 12:30:59",
        "edge_7_near/product_3;0:0",
    ],
)
def test_what_names_nobody_stays(text: str) -> None:
    assert NAMES.text(text) == text


def test_json_keeps_its_form() -> None:
    content = {"box": ["ann", 1, None, {"x": True}]}
    assert NAMES.json(content) == {"machine": ["user", 1, None, {"x": True}]}
