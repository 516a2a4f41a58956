"""PA105: a `tf.device` scope around layers of a functional model, which Keras forgets.

The layers are called again, outside of it, whenever the model runs: their ops have no device. What
was created within the scope, their variables, stands there all the same. Scopes of the default
device change nothing either way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.candidates.references import default_device

if TYPE_CHECKING:
    from placement_advisor.analysis.findings.evidence import Evidence

CODE = "PA105"
NAME = "scope-without-effect"
_SHOWN = 3


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return each such scope."""
    named = {scope.layers[0]: scope.device for scope in evidence.dropped_scopes}
    default = default_device({**evidence.requested_device_of, **named})
    found = []
    for scope in evidence.dropped_scopes:
        if scope.device == default:
            continue
        layers = ", ".join(scope.layers[:_SHOWN])
        if len(scope.layers) > _SHOWN:
            layers += f" and {len(scope.layers) - _SHOWN} more"
        where: dict[str, str | int] = {"layer": scope.layers[0], "device": scope.device}
        if scope.line is not None:
            where["file"], where["line"] = scope.line
        found.append(
            Finding(
                code=CODE,
                name=NAME,
                finding=f"your tf.device scope puts {layers} on {scope.device}, but Keras forgets "
                "it when a functional model is built: their ops have no device and run on "
                f"{default}",
                action="call them in a layer of your own whose call() opens the scope "
                "(advisor explain PA105 shows one)",
                where=where,
            )
        )
    return tuple(found)
