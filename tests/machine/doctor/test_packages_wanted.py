"""Versions against what is asked of them."""

from importlib import metadata

import pytest

from placement_advisor.machine.machine_facts import (
    NEEDED,
    VIEWERS,
    Package,
    Unmet,
    fits,
    has_profile_plugin,
    installed_packages,
    packages,
    wanted_python,
)


@pytest.mark.parametrize(
    ("version", "wanted", "answer"),
    [
        ("2.21.0", ">=2.21,<2.22", True),
        ("2.22.0", ">=2.21,<2.22", False),
        ("2.22.0rc1", "<2.22", False),
        ("2.22.0rc1", ">=2.21", True),
        ("0.68.1+cpu", ">=0.62", True),
        ("1.0", "", True),
        ("1.0", "about 2", True),
        ("2.0 of ours", "<1", True),
    ],
)
def test_a_version_is_among_those_wanted_or_not(version, wanted, answer):
    assert fits(version, wanted) is answer


def test_what_is_asked_of_a_package_is_gathered_from_all():
    found = packages(
        {"tensorflow": "2.21.0", "protobuf": "8.1.0", "xprof": None},
        {
            "placement-advisor": ["tensorflow<2.22,>=2.21", "protobuf>=6.31"],
            "tensorflow": [
                "Protobuf (<8.0.0,>=6.31.1)",
                'protobuf<1; extra == "old"',
                "numpy",
                "no requirement",
            ],
            "xprof": ["protobuf[upb]>=3.19.6"],
        },
    )
    assert found == (
        Package(name="tensorflow", version="2.21.0", wanted="<2.22,>=2.21", unmet=()),
        Package(
            name="protobuf",
            version="8.1.0",
            wanted=">=6.31",
            unmet=(Unmet(by="tensorflow", wanted="<8.0.0,>=6.31.1"),),
        ),
        Package(name="xprof", version=None, wanted=None, unmet=()),
    )

    (found,) = packages({"keras": None}, {"placement-advisor": ["keras>=3.12"]})
    assert found == Package(name="keras", version=None, wanted=">=3.12", unmet=())


def test_this_environment_has_what_it_wants():
    found = {package.name: package for package in installed_packages()}
    assert set(found) == {*NEEDED, *VIEWERS}
    assert all(package.version and not package.unmet for package in found.values())
    assert found["tensorflow"].version == metadata.version("tensorflow")
    assert has_profile_plugin()
    wanted = wanted_python()
    assert wanted is None or fits("3.11.0", wanted)
