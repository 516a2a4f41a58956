"""Outputs and pictures of a run in README.md and the tutorial, made again by `make readme`.

A comment such as ``<!-- advisor show -v advisor-out/deepconn; from: towers: compute -->`` stands
above each block: the command (of several, joined by ``&&``, the last), and which line of its output
the block begins with, if not the first; it then ends before the next empty line. Of `advisor run`
it has the lines of ours, among those that the script prints. Commands run in
the order of the pages, in a folder of their own, so that what the first one leaves is there for the
others. The machine should be at rest. What is said beside the blocks is written by hand: read it
after each run.

With ``--commands`` it prints what README.md tells readers to type, which `.ci/run` executes.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = (README, ROOT / "docs" / "tutorials" / "first-analysis.md")
_IMAGES = ROOT / "docs" / "images"
# What the first command leaves of what the page shows.
_PICTURES = ("advisor-out/train_deepconn/timeline.png", "advisor-out/train_deepconn/comparison.png")
_BLOCK = re.compile(
    r"^<!-- (?P<command>advisor [^;]+?)(?:; from: (?P<first>.+?))? -->\n\n```\n(?:.*\n)*?```\n",
    re.MULTILINE,
)


def typed(page):
    """Return what a page tells its readers to type, as a script."""
    return "".join(re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))


def commands(page):
    """Return the commands whose outputs a page shows, in order."""
    return [block["command"] for block in _BLOCK.finditer(page)]


def filled(page, output_of):
    """Return a page with what commands put out now."""

    def block(found):
        text = output_of(found["command"])
        if found["first"] is not None:
            text = text[text.index(found["first"]) :].partition("\n\n")[0]
        head = found[0].partition("```\n")[0]
        return f"{head}```\n{text.rstrip()}\n```\n"

    return _BLOCK.sub(block, page)


def _in(folder):
    (folder / "sample_models").symlink_to(ROOT / "sample_models")
    advisor = Path(sys.executable).with_name("advisor")

    def output_of(command):
        output = ""
        for each in command.split(" && "):
            began = time.monotonic()
            arguments = shlex.split(each)[1:]
            is_run = arguments[0] == "run"
            ran = subprocess.run(
                [advisor, *arguments],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if is_run else None,
                text=True,
                check=True,
            )
            output = _told(ran.stderr) if is_run else ran.stdout
            print(f"{time.monotonic() - began:.0f} s: {each}", file=sys.stderr)
        return output

    return output_of


def _told(errors):
    """Return what `advisor` has said while a script printed as well."""
    told = [line for line in errors.splitlines() if line.startswith("advisor: ")]
    return "\n".join(textwrap.fill(line, 88, subsequent_indent="  ") for line in told)


def main():
    """Write outputs and pictures."""
    with tempfile.TemporaryDirectory() as folder:
        output_of = _in(Path(folder))
        pages = {page: filled(page.read_text(encoding="utf-8"), output_of) for page in PAGES}
        for picture in _PICTURES:
            shutil.copy(Path(folder, picture), _IMAGES)
    for page, text in pages.items():
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if "--commands" in sys.argv:
        print(typed(README.read_text(encoding="utf-8")))
    else:
        main()
