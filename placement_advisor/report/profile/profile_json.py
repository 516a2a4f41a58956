"""A read profile as the public contract of ``advisor profile --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.profile.tensor_totals import TensorTotals
    from placement_advisor.profile.timeline.device_trace import Route, Use
    from placement_advisor.profile.totals import (
        Amount,
        DeviceTotals,
        ReadProfile,
        RouteTotals,
    )
    from placement_advisor.profile.xprof_overview import XprofOverview

SCHEMA_VERSION = 1


def profile_as_json(read: ReadProfile) -> dict[str, Any]:
    """Return the content, valid against ``load_schema("profile")``."""
    profile = read.totals
    return {
        "schema_version": SCHEMA_VERSION,
        "advisor_version": __version__,
        "path": profile.path,
        "format": read.form,
        "steps_from": profile.steps_from,
        "step_ns": list(profile.step_ns),
        "warm_up_steps": profile.warm_up_steps,
        "span_ns": profile.span_ns,
        "unclassified_share": profile.unclassified_share,
        "devices": [_device(device) for device in profile.devices],
        "routes": [_route(route) for route in profile.routes],
        "by_host": [
            {
                "source": each.source,
                "target": each.target,
                "count": each.count,
                "of_unknown_size": each.of_unknown_size,
                "size_bytes": each.size_bytes,
            }
            for each in profile.by_host
        ],
        "tensors": [_tensor(tensor) for tensor in profile.tensors],
        "activities": [
            {
                "name": activity.name,
                "calls": activity.calls,
                "total_ns": activity.total_ns,
                "min_ns": activity.min_ns,
                "max_ns": activity.max_ns,
                "is_copy": activity.is_copy,
            }
            for activity in profile.activities
        ],
        "waits": [
            {
                "device": wait.device,
                "cause": wait.cause,
                "what": wait.what,
                "where": wait.where,
                "time_ns": wait.time_ns,
            }
            for wait in profile.waits
        ],
        "explained_shares": profile.explained_shares,
        "xprof": None if read.xprof is None else _xprof(read.xprof),
        "notes": [*([] if read.which is None else [read.which]), *profile.notes],
    }


def _device(device: DeviceTotals) -> dict[str, Any]:
    per_step = None
    if device.per_step is not None:
        per_step = {**_amounts(device.per_step), "idle_ns": device.idle_per_step_ns}
    return {
        "name": device.device,
        "in_all": {**_amounts(device.total), "idle_ns": device.idle_ns},
        "per_step": per_step,
    }


def _amounts(amounts: Mapping[Use, Amount]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for use, amount in amounts.items():
        found[f"{use.name.lower()}_ns"] = amount.time_ns
        if use.name != "COMPUTE":
            found[f"{use.name.lower()}_exposed_ns"] = amount.exposed_ns
    return found


def _route(route: RouteTotals) -> dict[str, Any]:
    per_step = None
    if route.count_per_step is not None:
        per_step = {
            "count": route.count_per_step,
            "size_bytes": route.bytes_per_step,
            "time_ns": route.time_per_step_ns,
            "exposed_ns": route.exposed_per_step_ns,
        }
    return {
        **_ends(route.route),
        "count": route.count,
        "of_unknown_size": route.of_unknown_size,
        "size_bytes": route.size_bytes,
        "time_ns": route.time_ns,
        "exposed_ns": route.exposed_ns,
        "bytes_per_s": route.bytes_per_s,
        "per_step": per_step,
    }


def _tensor(tensor: TensorTotals) -> dict[str, Any]:
    return {
        "tensor": tensor.tensor,
        **_ends(tensor.route),
        "count": tensor.count,
        "of_unknown_size": tensor.of_unknown_size,
        "size_bytes": tensor.size_bytes,
        "time_ns": tensor.time_ns,
        "exposed_ns": tensor.exposed_ns,
        "op": tensor.op,
        "layer": tensor.layer,
        "tensor_bytes": tensor.tensor_bytes,
    }


def _ends(route: Route) -> dict[str, str]:
    return {"source": route.source, "target": route.target, "kind": route.kind}


def _xprof(overview: XprofOverview) -> dict[str, int]:
    return {
        "step_ns": overview.step_ns,
        "compute_ns": overview.compute_ns,
        "device_to_device_ns": overview.device_to_device_ns,
        "collectives_ns": overview.collectives_ns,
    }
