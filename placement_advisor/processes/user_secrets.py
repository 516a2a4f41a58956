"""Secrets of the user's: values of arguments and of the environment that are called so.

What comes from a child passes here before anybody reads it: what it prints, raises, and fails with.
Left out: names that the user's code gives to ops and layers, by which they are found again, and
secrets that it reads from files.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placement_advisor.errors import AdvisorError
from placement_advisor.processes.call_failure import CallFailure

if TYPE_CHECKING:
    from collections.abc import Iterator

# Names of what nobody else is to read, as a word of its own or at the end of one: not TOKENIZERS.
_SECRET = re.compile(r"(keys?|tokens?|passw(or)?ds?|secrets?|credentials?)(?![a-z])", re.IGNORECASE)
_HIDDEN = "***"
# Shorter values are words or numbers that stand everywhere.
_SHORTEST_SECRET = 5
# Those of arguments; the environment is at hand.
_hidden: set[str] = set()


def hide_secrets(arguments: tuple[str, ...]) -> None:
    """Hide what is secret among the arguments of a script, in this process, from now on."""
    _hidden.update(secret for _, secret in _parted(arguments) if secret is not None)


def shown_arguments(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return arguments as they may be shown: without what is a secret by its name."""
    return tuple(shown for shown, _ in _parted(arguments))


def without_secrets(text: str) -> str:
    """Return a text without secrets of the environment, and without those that are hidden."""
    secrets = _hidden | {value for name, value in os.environ.items() if _SECRET.search(name)}
    # As they are, and as a list of arguments or a `KeyError` shows them.
    forms = {form for secret in secrets for form in (secret, repr(secret)[1:-1])}
    for form in sorted(forms, key=len, reverse=True):
        if len(form) >= _SHORTEST_SECRET:
            text = text.replace(form, _HIDDEN)
    return text


def told_without_secrets(outcome: str, value: Any) -> Any:
    """Return what a child has answered without secrets in what it tells: errors and failures.

    All else that was "returned" stays as it is, texts too: they are paths and addresses.
    """
    match value:
        case AdvisorError():
            hint = value.hint and without_secrets(value.hint)
            return type(value)(without_secrets(value.message), hint=hint)
        case CallFailure():
            return replace(
                value,
                message=without_secrets(value.message),
                in_full=without_secrets(value.in_full),
                output_tail=without_secrets(value.output_tail),
            )
        case str() if outcome == "raised":
            return without_secrets(value)
    return value


def _parted(arguments: tuple[str, ...]) -> Iterator[tuple[str, str | None]]:
    """Yield each argument as it may be shown, with the secret that it holds.

    >>> [shown for shown, _ in _parted(("--data", "d", "--api-key", "k", "--token=t"))]
    ['--data', 'd', '--api-key', '***', '--token=***']
    """
    follows = False
    for word in arguments:
        name, equals, value = word.partition("=")
        is_named = _SECRET.search(name) is not None and (word.startswith("-") or equals != "")
        if is_named and equals:
            yield f"{name}={_HIDDEN}", value
        elif follows and not word.startswith("--"):
            yield _HIDDEN, word
        else:
            yield word, None
        follows = is_named and not equals
