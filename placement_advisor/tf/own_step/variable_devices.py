"""The state of the user's own step, moved to the devices of a placement.

A variable lives where it was created, and TensorFlow runs every op that touches it there. So a
placed step's variables are created anew on their device, with their value, and the user's own
`tf.Variable` is made to hold the new one: reading, assigning and saving it go on as before. The
old one is emptied: it frees its memory, and a function that was traced with it fails instead of
training or testing what nobody else sees.

A table that a step only reads is copied to the device that reads it.

Left out: variables of `tf.distribute`, and those that nothing known to the step owns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.errors import PlacementError
from placement_advisor.tf.own_step.real_devices import short_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.tf.trace.captures import State, Table


def moved_handles(
    state: State, device_of: Mapping[str, str], owners: Mapping[int, Any]
) -> dict[str, Any]:
    """Put each variable and table on its device and return the handles, by name.

    ``device_of`` gives a TensorFlow device for each name, ``owners`` the `tf.Variable` of a handle
    by the handle's `id`. What is there already stays as it is.

    Raises:
        PlacementError: a variable cannot be moved; then none is.
    """
    leaving = {
        name: held
        for name, held in state.variables.items()
        if not _is_on(held.handle, device_of[name])
    }
    for name, held in leaving.items():
        if id(held.handle) not in owners:
            raise PlacementError(
                f"variable {name!r} is on {short_name(held.handle.device)} and cannot be moved to "
                f"{short_name(device_of[name])}: its owner is not known",
                hint=f"create it under tf.device({device_of[name]!r})",
            )
    for name, held in leaving.items():
        _move(owners[id(held.handle)], device_of[name])
    handles = {
        name: owners[id(held.handle)].handle if name in leaving else held.handle
        for name, held in state.variables.items()
    }
    tables = {
        name: table.handle if _is_on(table.handle, device_of[name]) else _copied(table, where)
        for name, table in state.tables.items()
        for where in [device_of[name]]
    }
    return handles | tables


def _move(variable: Any, device: str) -> None:
    old, dtype = variable.handle, variable.dtype
    with tf.device(device):
        value = tf.identity(tf.raw_ops.ReadVariableOp(resource=old, dtype=dtype))
        # The one attribute that says where a variable lives; there is no public way to set it.
        variable._handle = tf.Variable(value, shape=variable.shape, dtype=dtype).handle
    if dtype != tf.variant:
        with tf.device(old.device):
            tf.raw_ops.AssignVariableOp(resource=old, value=tf.constant([], dtype))


def _copied(table: Table, device: str) -> Any:
    keys, values = table.content()
    with tf.device(device):
        handle = tf.raw_ops.AnonymousHashTable(
            key_dtype=table.key_dtype, value_dtype=table.value_dtype
        )
        tf.raw_ops.LookupTableImportV2(
            table_handle=handle,
            keys=tf.constant(keys, table.key_dtype),
            values=tf.constant(values, table.value_dtype),
        )
    return handle


def _is_on(handle: Any, device: str) -> bool:
    return short_name(handle.device) == short_name(device)
