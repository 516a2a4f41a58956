"""The state of the user's own step on the devices of a placement, and back where it was.

A variable lives where it was created, and TensorFlow runs every op that touches it there. So a
placed step's variables are created anew on their device, with their value, and the user's own
`tf.Variable` is made to hold the new one: reading, assigning and saving it go on as before. The
one that is left is emptied: it frees its memory, and a function that was traced with it fails
instead of training or testing what nobody else sees. Variables can go back, and functions of then
work again.

A table that a step only reads is copied to the device that reads it.

Left out: variables of `tf.distribute`, and those that nothing known to the step owns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.errors import PlacementError
from placement_advisor.tf.own_step.real_devices import short_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.tf.trace.captures import State, Table


@dataclass(slots=True)
class _Moving:
    """A variable with both of its handles; that of the device is made when it first goes there."""

    variable: Any
    device: str
    own: Any
    there: Any | None = None


class MovedState:
    """The state of a step, whose variables are where they were, or where a placement has them."""

    def __init__(
        self, state: State, device_of: Mapping[str, str], owners: Mapping[int, Any]
    ) -> None:
        """Find what has to move; nothing moves yet.

        ``device_of`` gives a TensorFlow device for each name, ``owners`` the `tf.Variable` of a
        handle by the handle's `id`. What is there already stays as it is.

        Raises:
            PlacementError: a variable cannot be moved.
        """
        self._state, self._device_of = state, device_of
        self._moving: dict[str, _Moving] = {}
        self._tables: dict[str, Any] | None = None
        for name, held in state.variables.items():
            if _is_on(held.handle, device_of[name]):
                continue
            if id(held.handle) not in owners:
                raise PlacementError(
                    f"variable {name!r} is on {short_name(held.handle.device)} and cannot be moved "
                    f"to {short_name(device_of[name])}: its owner is not known",
                    hint=f"create it under tf.device({device_of[name]!r})",
                )
            self._moving[name] = _Moving(owners[id(held.handle)], device_of[name], held.handle)

    def go(self) -> None:
        """Put all variables where the placement has them."""
        for each in self._moving.values():
            each.there = _carried(each.variable, each.there, each.device)

    def go_back(self) -> None:
        """Put them where they were."""
        for each in self._moving.values():
            _carried(each.variable, each.own, each.own.device)

    def handles(self) -> dict[str, Any]:
        """Return the handles of variables and tables by name; variables have gone there."""
        variables = {name: held.handle for name, held in self._state.variables.items()}
        variables |= {name: each.there for name, each in self._moving.items()}
        if self._tables is None:
            self._tables = {
                name: table.handle if _is_on(table.handle, where) else _copied(table, where)
                for name, table in self._state.tables.items()
                for where in [self._device_of[name]]
            }
        return variables | self._tables


def _carried(variable: Any, handle: Any | None, device: str) -> Any:
    """Have a variable hold its value by another handle, made on the device if there is none.

    Whenever it is interrupted, the variable has its value.
    """
    left, dtype = variable.handle, variable.dtype
    if left is handle:
        return handle
    with tf.device(device):
        value = tf.identity(tf.raw_ops.ReadVariableOp(resource=left, dtype=dtype))
        if handle is None:
            handle = tf.Variable(value, shape=variable.shape, dtype=dtype).handle
        else:
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        # The one attribute that says where a variable lives; there is no public way to set it.
        variable._handle = handle
    if dtype != tf.variant:
        with tf.device(left.device):
            tf.raw_ops.AssignVariableOp(resource=left, value=tf.constant([], dtype))
    return handle


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
