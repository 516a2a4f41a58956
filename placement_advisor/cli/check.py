"""`advisor check`: a project's placements against its lock file; `explain`: what a code means."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placement_advisor.cli.console import progress, text_output
from placement_advisor.cli.options import OpenPorts, Quiet, TimeLimit
from placement_advisor.defaults import TIME_LIMIT_S
from placement_advisor.errors import AdvisorError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.check.problem_codes import CheckResult


class Format(StrEnum):
    """How to write it."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"
    MARKDOWN = "markdown"


def check(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            # The help is Rich's markup, where a bracket would begin a style.
            help="Models of \\[tool.advisor] in pyproject.toml, with or without :NAME. "
            "Default: all.",
        ),
    ] = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Accept the placements as they are now: write placements.lock.json again.",
        ),
    ] = False,
    graphs_only: Annotated[
        bool,
        typer.Option(
            "--graphs-only", help="Run no model code: check the graph files that are configured."
        ),
    ] = False,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Also run the placements on the devices here, in turns with the locked ones.",
        ),
    ] = False,
    open_ports: OpenPorts = False,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="FORMAT[=FILE]",
            help=f"{', '.join(Format)}; to a file, or to stdout. Several are possible. "
            "Default: text.",
        ),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="In text: all problems, all figures, all changes."),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Count an inconclusive check as failed.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Models that are traced at once. Default: as many as cores."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Settings to read. Default: pyproject.toml in this folder or the nearest above.",
        ),
    ] = None,
    quiet: Quiet = False,
    time_limit: TimeLimit = TIME_LIMIT_S,
) -> None:
    """Fail if a placement is predicted to be worse than placements.lock.json has it.

    Exit codes: 0 passed, 1 a check failed, 2 could not run.
    """
    from placement_advisor.check.check_models import CheckOptions, check_models
    from placement_advisor.check.lock_file import find_config, read_config

    if measure and (update or graphs_only):
        raise AdvisorError(
            "--measure runs steps, which --update and --graphs-only do not",
            hint="run one after the other",
        )
    wanted = [_format(words) for words in formats or [Format.TEXT]]
    settings_file = config or Path(os.path.relpath(find_config(Path.cwd())))
    settings = read_config(settings_file)
    _keep(settings_file, settings.lock_file, [file for _, file in wanted if file is not None])
    options = CheckOptions(
        only=tuple(models or ()),
        update=update,
        graphs_only=graphs_only,
        measure=measure,
        open_ports=open_ports,
        strict=strict,
        jobs=jobs,
        time_limit_s=time_limit,
    )
    with ExitStack() as stack:
        writers = [
            (form, stack.enter_context(text_output(file, option="--format")))
            for form, file in wanted
        ]
        with progress(quiet=quiet) as watcher:
            result = check_models(settings, options, watcher)
        for form, write in writers:
            write(_written(form, result, settings.root, verbose=verbose))
    raise typer.Exit(result.exit_code)


def _format(words: str) -> tuple[Format, Path | None]:
    """Return a format and the file that it goes to, if any.

    Raises:
        AdvisorError: there is no such format, or no name of a file.
    """
    name, equals, file = words.partition("=")
    if name not in list(Format) or (equals and not file):
        raise AdvisorError(
            f"--format {words}: not a format, or not one with a file",
            hint=f"give one of {', '.join(Format)}, as in --format {Format.SARIF}=report.sarif",
        )
    return Format(name), Path(file) if file else None


def _keep(settings: Path, lock: Path, files: Iterable[Path]) -> None:
    """Let no report take the place of what is read, nor of another report.

    Raises:
        AdvisorError: one would.
    """
    taken = {settings.resolve(): "is read", lock.resolve(): "is the lock file"}
    for file in files:
        if why := taken.get(file.resolve()):
            raise AdvisorError(
                f"{file}: {why}, so no report goes there", hint="choose another file with --format"
            )
        taken[file.resolve()] = "gets another report"


def _written(form: Format, result: CheckResult, root: Path, *, verbose: bool) -> str:
    """Return the report in a format."""
    from placement_advisor.files.contract import plain
    from placement_advisor.report import check_report
    from placement_advisor.results.check import Check

    match form:
        case Format.TEXT:
            return check_report.check_as_text(result, verbose=verbose)
        case Format.MARKDOWN:
            return check_report.check_as_markdown(result)
        case Format.GITHUB:
            return check_report.check_as_github(_in_repository(result, root))
        case Format.SARIF:
            return _json(check_report.check_as_sarif(_in_repository(result, root)))
        case Format.JSON:
            return _json(plain(Check.of(result)))


def _json(content: object) -> str:
    # What stands on stdout ends in a log, where GitHub carries out `##[...]`.
    return json.dumps(content, indent=2).replace("##", "#\\u0023") + "\n"


def _in_repository(result: CheckResult, root: Path) -> CheckResult:
    """Return the result with places as the repository around the project has them.

    GitHub's workspace is one where a checkout left no `.git`.
    """
    folder = root.resolve()
    around = (folder, *folder.parents)
    workspace = Path(os.environ.get("GITHUB_WORKSPACE", folder)).resolve()
    checkout = workspace if workspace in around else folder
    repository = next((p for p in around if (p / ".git").exists()), checkout)
    return result.within(folder.relative_to(repository))


def _codes() -> list[str]:
    """Return all codes, without the rules of findings, which import NumPy."""
    from importlib import resources

    from placement_advisor.check.problem_codes import EXPLANATIONS

    pages = (resources.files("placement_advisor.analysis.findings") / "pages").iterdir()
    return sorted({*EXPLANATIONS, *(page.name.removesuffix(".md") for page in pages)})


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]",
            autocompletion=_codes,
            help="A finding or a check's problem, by code or name, such as PA101, batch-too-small "
            "or slower-step.",
        ),
    ] = None,
) -> None:
    """Tell what a code means, when it is found and what to do; without one, list all."""
    if code is None:
        _list()
        return
    text = _page(code)
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def _list() -> None:
    from placement_advisor.analysis.findings.rules import RULES
    from placement_advisor.check.problem_codes import EXPLANATIONS

    findings = {rule.code for rule in RULES}
    problems = {code: told for code, told in EXPLANATIONS.items() if code not in findings}
    width = max(map(len, problems))
    print("Findings of advisor analyze:")
    for rule in RULES:
        print(f"  {rule.code}  {rule.name}")
    print("\nProblems of advisor check, where findings count too:")
    for code, told in problems.items():
        print(f"  {code:<{width}}  {told.title}")


def _page(code: str) -> str:
    """Return the page of a code or a name, whatever its case.

    Raises:
        AdvisorError: nothing is called so.
    """
    from placement_advisor.analysis.findings import rules
    from placement_advisor.analysis.findings.rules import RULES
    from placement_advisor.check.problem_codes import EXPLANATIONS, problem_page

    if code.upper() in {rule.code for rule in RULES}:
        return rules.finding_page(code)
    word = code.lower()
    # A problem of a check may be called as the finding that it is about.
    pages = [problem_page(word)] if word in EXPLANATIONS else []
    pages += [rules.finding_page(rule.code) for rule in RULES if word == rule.name]
    if pages:
        return "\n".join(pages)
    known = [*(rule.code for rule in RULES), *(name for name in EXPLANATIONS if name.islower())]
    raise AdvisorError(
        f"no finding and no problem of a check is called {code!r}; there are {', '.join(known)}",
        hint="`advisor explain` lists them with their names",
    )
