"""Whether two hosts fit together: they have one version of all that matters, or one clear error."""

from __future__ import annotations

import platform

from placement_advisor import __version__
from placement_advisor.errors import TestbedError
from placement_advisor.remote_hosts.host_facts import tensorflow_version

# Change it with the messages of the conversation. What `own_versions` returns stays a plain object,
# so that any two versions can tell each other what they are.
PROTOCOL = 1

_WORDS = {
    "protocol": "the conversation of workers in version {}",
    "advisor": "placement-advisor {}",
    "tensorflow": "TensorFlow {}",
}


def own_versions() -> dict[str, object]:
    """Return what this host tells others."""
    return {
        "protocol": PROTOCOL,
        "advisor": __version__,
        "tensorflow": tensorflow_version(),
        "python": platform.python_version(),
    }


def check_versions(host: str, theirs: object) -> None:
    """Check that a host has the versions that this one has.

    Raises:
        TestbedError: it has others; the error names both.
    """
    if not isinstance(theirs, dict):
        raise TestbedError(f"host {host}: what answers there is no worker of placement-advisor")
    ours = own_versions()
    for what, words in _WORDS.items():
        there, here = theirs.get(what), ours[what]
        if there != here:
            # TensorFlow itself lets two versions run together without a word.
            raise TestbedError(
                f"host {host} has {_said(words, there)}, this machine {_said(words, here)}",
                hint="install one version on both",
            )


def _said(words: str, version: object) -> str:
    return f"no {words.format('').strip()}" if version is None else words.format(version)
