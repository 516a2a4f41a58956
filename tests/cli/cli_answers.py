"""What the command answers: JSON that keeps its contract, an analysis, or one error."""

import json
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jsonschema
from command_runs import _ROOT, LAUNCH, Ran, run_here
from program_runs import run_program

from placement_advisor.results.contracts import load_schema


def told(ran, schema, *, passed=None):
    """Return the JSON that a run printed; one that checks says in ``passed`` how it ends."""
    assert ran.code == 0 or passed is not None, ran.err
    content = json.loads(ran.out)
    jsonschema.Draft202012Validator(load_schema(schema)).validate(content)
    assert passed is None or ran.code == (0 if content[passed] else 1)
    return content


def refusal(ran):
    """Return the error of a run that did nothing else."""
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert "Traceback" not in ran.err
    return ran.err


def error_of(*words):
    """Return the lines of the error of a run in this process that did nothing else."""
    return refusal(run_here(*words)).splitlines()


def content_of(folder):
    """Return what lies in a folder, by path: the bytes of a file, and nothing of a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


def apart(*words, within=(), launch=LAUNCH, cwd=None, **variables):
    """Run the command as its installed script does, within another one, in a process of its own."""
    python = (*within, sys.executable, "-P", "-c", launch)
    done = run_program(*python, *words, cwd=cwd, env={"PYTHONPATH": str(_ROOT), **variables})
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


@dataclass(frozen=True, kw_only=True)
class Analysed:
    """A run of `advisor analyze`, its output folder, and what the testbed saw."""

    ran: Ran
    folder: Path
    calls: list

    @cached_property
    def analysis(self):
        found = json.loads(self.text("analysis.json"))
        jsonschema.validate(found, load_schema("analysis"))
        return found

    def text(self, name):
        return (self.folder / name).read_text()

    def candidate(self, name):
        (found,) = (each for each in self.analysis["candidates"] if each["name"] == name)
        return found

    def texts(self):
        """Return all that was shown or written."""
        files = (path for path in self.folder.rglob("*") if path.is_file())
        written = (path.read_bytes().decode(errors="replace") for path in files)
        return [self.ran.out, self.ran.err, *written]


def analysed(run, model, folder, *words, code=0, calls=()):
    """Run `advisor analyze` in one of the ways to run the command."""
    ran = run("analyze", str(model), "-o", str(folder), *words)
    assert ran.code == code, ran.err
    return Analysed(ran=ran, folder=folder, calls=calls)
