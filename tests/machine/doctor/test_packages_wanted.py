"""Versions against what is asked of them."""

from importlib import metadata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.machine.machine_facts import (
    NEEDED,
    VIEWERS,
    Package,
    fits,
    has_profile_plugin,
    installed_packages,
    packages,
    wanted_python,
)


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("2.21.0", ">=2.21,<2.22"),
        ("2.21", ">=2.21.0"),
        ("6.33.4", "<8.0.0,>=6.31.1"),
        ("2.24.2", "==2.24.2"),
        ("2.24.2", "==2.24.*"),
        ("3.1.9", "~=3.1.4"),
        ("1!2.0", "===anything"),  # A form that is not known is taken as met.
        ("0.68.1+cpu", ">=0.62"),
        ("3.11.7", ">=3.11,<3.14"),
        ("1.0", ""),
    ],
)
def test_a_version_among_those_wanted_fits(version, wanted):
    assert fits(version, wanted)


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("2.22.0", ">=2.21,<2.22"),
        ("2.22.0rc1", "<2.22"),
        ("2.20.1", ">=2.21"),
        ("0.5.0", "!=0.5.0"),
        ("2.25.0", "==2.24.*"),
        ("2.24.7", "!=2.24.*"),
        ("3.2.0", "~=3.1.4"),
        ("3.14.0", ">=3.11,<3.14"),
        ("10.0", "<9"),
    ],
)
def test_a_version_outside_does_not_fit(version, wanted):
    assert not fits(version, wanted)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=4), st.integers(1, 50))
def test_any_version_lies_between_itself_and_the_next(numbers, step):
    version = ".".join(map(str, numbers))
    following = ".".join(map(str, [*numbers[:-1], numbers[-1] + step]))
    assert fits(version, f">={version},<{following},=={version}.0")
    assert not fits(following, f"<={version}")
    assert not fits(version, f">{version}")


def test_what_is_asked_of_a_package_is_gathered_from_all():
    found = packages(
        {"tensorflow": "2.21.0", "protobuf": "8.1.0", "xprof": None},
        {
            "placement-advisor": ["tensorflow<2.22,>=2.21", "protobuf>=6.31"],
            "tensorflow": ["Protobuf (<8.0.0,>=6.31.1)", 'protobuf<1; extra == "old"', "numpy"],
            "xprof": ["protobuf[upb]>=3.19.6"],
        },
    )
    assert found == (
        Package(name="tensorflow", version="2.21.0", wanted="<2.22,>=2.21"),
        Package(
            name="protobuf",
            version="8.1.0",
            wanted=">=6.31",
            unmet=(("tensorflow", "<8.0.0,>=6.31.1"),),
        ),
        Package(name="xprof", version=None, wanted=None),
    )

    (found,) = packages({"keras": None}, {"placement-advisor": ["keras>=3.12"]})
    assert found == Package(name="keras", version=None, wanted=">=3.12")


def test_this_environment_has_what_it_wants():
    found = {package.name: package for package in installed_packages()}
    assert set(found) == {*NEEDED, *VIEWERS}
    assert all(package.version and not package.unmet for package in found.values())
    assert found["tensorflow"].version == metadata.version("tensorflow")
    assert has_profile_plugin()
    wanted = wanted_python()
    assert wanted is None or fits("3.11.0", wanted)
