import re
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement

# As packages write them, in SPDX or as a classifier. Of MPL-2.0 packages nothing is changed here.
TAKEN = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0"),
    *("MIT-CMU", "MPL-2.0", "PSF-2.0", "Zlib", "Apache-2.0 WITH LLVM-exception"),
    *("3-Clause BSD License", "Apache License 2.0", "Apache Software License", "BSD License"),
    *("ISC License (ISCL)", "MIT License", "Mozilla Public License 2.0 (MPL 2.0)"),
    "Python Software Foundation License",
}
# What says it in its repository alone.
ELSEWHERE = {"namex": "Apache-2.0"}


def licence(package):
    """Return the licence of a package as SPDX, as classifiers joined by AND, or as it says."""
    told = package.metadata
    given = (each.split(" :: ") for each in told.get_all("Classifier") or ())
    classifiers = [last for first, *_, last in given if first == "License"]
    # From Python 3.12 on, asking for what is not there is a warning.
    expression, words = (told.get_all(key, [""])[0] for key in ("License-Expression", "License"))
    return (
        expression
        or " AND ".join(classifiers)
        or words.partition("\n")[0]
        or ELSEWHERE.get(told["Name"], "")
    )


def is_taken(licence):
    return any(
        all(part in TAKEN for part in re.split(r"\s+AND\s+", re.sub(r"^\((.*)\)$", r"\1", choice)))
        for choice in re.split(r"\s+OR\s+", licence)
    )


def installed_with(name):
    """Return a package and all that it needs here, by name."""
    found = {}
    waiting = [name]
    while waiting:
        wanted = waiting.pop()
        try:
            package = distribution(wanted)
        except PackageNotFoundError:  # For another Python, or not installed by choice.
            continue
        if package.metadata["Name"] in found:
            continue
        found[package.metadata["Name"]] = package
        needed = [Requirement(each) for each in package.requires or ()]
        waiting += [
            each.name
            for each in needed
            if each.marker is None or each.marker.evaluate({"extra": ""})
        ]
    return found


def test_every_package_that_is_installed_has_a_licence_that_is_taken():
    packages = installed_with("placement-advisor")
    assert {"tensorflow", "numpy", "rich"} <= packages.keys()
    licences = {name: licence(package) for name, package in packages.items()}
    assert {name: each for name, each in licences.items() if not is_taken(each)} == {}
