"""Cuts a release from a clean checkout: `make release`, or `make release TO=0.3.0`.

CHANGELOG.md must have a section of that version. What is built is installed into an empty
environment and asked for its version, and whether it works here. Nothing is committed, tagged or
pushed: what to type for that is printed, with the text of the tag.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
FRONT = "placement_advisor/__init__.py"
_VERSION = re.compile(r'(?<=^__version__ = ")[^"]+', re.MULTILINE)
_NUMBERS = re.compile(r"\d+\.\d+\.\d+")


def changes(changelog, version):
    """Return what the changelog's section of a version says."""
    heading = rf"^## \[?{re.escape(version)}\]?(?: [^\n]*)?$"
    found = re.search(rf"{heading}\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        sys.exit(f"CHANGELOG.md says nothing under `## {version}`")
    return found[1].strip()


def prepare(root, to):
    """Set the version, if one is given; return it, and the text of its tag."""
    if subprocess.check_output(["git", "status", "--porcelain"], cwd=root):
        sys.exit("commit or remove what is not committed: git status")
    front = root / FRONT
    version = to or _VERSION.search(front.read_text(encoding="utf-8"))[0]
    if not _NUMBERS.fullmatch(version):
        sys.exit(f"{version}: not a version such as 0.3.0")
    text = changes((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    front.write_text(_VERSION.sub(version, front.read_text(encoding="utf-8")), encoding="utf-8")
    return version, f"placement-advisor {version}\n\n{text}\n"


def build(root, version):
    """Build both archives into dist/; return the wheel."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", "dist"], cwd=root, check=True)
    source, wheel = (
        root / "dist" / f"placement_advisor-{version}{end}"
        for end in (".tar.gz", "-py3-none-any.whl")
    )
    if not (source.is_file() and wheel.is_file()):
        sys.exit(f"dist/ has no {source.name} with {wheel.name}")
    return wheel


def try_out(wheel, version):
    """Install a wheel into an empty environment, and run what it brings."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        programs = Path(folder, "bin")
        subprocess.run([programs / "pip", "install", "--quiet", wheel], check=True)
        said = subprocess.check_output([programs / "advisor", "--version"], cwd=folder, text=True)
        if said != f"placement-advisor {version}\n":
            sys.exit(f"the wheel of {version} calls itself: {said}")
        subprocess.run([programs / "advisor", "doctor"], cwd=folder, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", nargs="?", help="Default: the one that the checkout has.")
    version, text = prepare(ROOT, parser.parse_args().version)
    try_out(build(ROOT, version), version)
    if subprocess.run(["git", "diff", "--quiet"], cwd=ROOT, check=False).returncode:
        print(f"\ngit commit --all --message 'Release {version}'")
    print(f"\ngit tag --annotate --cleanup=verbatim v{version}, with this text:\n\n{text}", end="")


if __name__ == "__main__":
    main()
