"""Kinds that cost next to nothing, and the lists and arrays of loops.

An alias hands the buffer of its input on. Reading a variable is one: TensorFlow copies the buffer
only when it is written. Shape kinds look at a shape, not at elements. Placeholders, constants and
handles are there before the step. A list holds its items' buffers: reading or writing an item is
an alias, while stacking and splitting copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.op_work.formula_parts import (
    FREE,
    Formula,
    bytes_of,
    copied_out,
    nothing,
)

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.formula_parts import Rule
    from placement_advisor.graph.op_work.signature import Signature


def _copied_in(index: int) -> Rule:
    """Read an input and write as much."""

    def rule(signature: Signature) -> int:
        return 2 * bytes_of(signature.inputs[index])

    return rule


def _copied_first_out(signature: Signature) -> int:
    return 2 * bytes_of(signature.outputs[0])


# Kinds that hand the buffer of their one tensor on, as it is.
ALIAS_KINDS = frozenset(
    {
        "DebugGradientIdentity",
        "DebugIdentity",
        "DebugIdentityV2",
        "EnsureShape",
        "ExpandDims",
        "GuaranteeConst",
        "Identity",
        "PreventGradient",
        "RefIdentity",
        "Reshape",
        "Squeeze",
        "StopGradient",
    }
)
# Kinds whose output is the variable's own buffer; TensorFlow copies it only when it is written.
VARIABLE_READ_KINDS = frozenset({"ReadVariableOp"})
_SEVERAL_ALIASES = """
ArrayToList CopyToMesh IdentityN ListToArray OptionalFromValue OptionalGetValue
PlaceholderWithDefault ReadVariablesOp
"""
_SHAPES = """
BroadcastArgs BroadcastGradientArgs ConcatOffset DeviceIndex IsVariableInitialized LookupTableSize
LookupTableSizeV2 OptionalHasValue Rank ResourceCountUpTo RngReadAndSkip RngSkip Shape ShapeN Size
StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg TensorArraySize
TensorArraySizeV2 TensorArraySizeV3 TensorListElementShape TensorListLength TensorMapSize
VarIsInitializedOp VariableShape
"""
_SOURCES = """
AnonymousHashTable AnonymousMutableDenseHashTable AnonymousMutableHashTable
AnonymousMutableHashTableOfTensors AnonymousSeedGenerator Arg Const DeviceArg DeviceRetval
EagerConst EmptyTensorList EmptyTensorMap FakeParam HashTable HashTableV2 HostConst ImmutableConst
MutableDenseHashTable MutableDenseHashTableV2 MutableHashTable MutableHashTableOfTensors
MutableHashTableOfTensorsV2 MutableHashTableV2 MutexV2 OptionalNone Placeholder PlaceholderV2 Retval
Stack StackV2 TemporaryVariable TensorArray TensorArrayV2 TensorArrayV3 TensorListReserve
VarHandleOp VarHandlesOp Variable VariableV2
"""
# A copy between devices is a transfer, which the links price.
_ORDER = """
Abort Assert ConsumeMutexLock ControlTrigger DestroyResourceOp DestroyTemporaryVariable
DisableCopyOnRead Enter Exit HostRecv HostSend LoopCond Merge MutexLock NextIteration NoOp Print
PrintV2 Recv RefEnter RefExit RefMerge RefNextIteration RefSwitch Send StackClose StackCloseV2
Switch SwitchN TensorArrayClose TensorArrayCloseV2 TensorArrayCloseV3 Timestamp ToBool
"""
_ITEMS = """
StackPop StackPopV2 StackPush StackPushV2 TensorArrayGrad TensorArrayGradV2 TensorArrayGradV3
TensorArrayGradWithShape TensorArrayRead TensorArrayReadV2 TensorArrayReadV3 TensorArrayWrite
TensorArrayWriteV2 TensorArrayWriteV3 TensorListConcatLists TensorListGetItem TensorListPopBack
TensorListPushBack TensorListPushBackBatch TensorListResize TensorListSetItem TensorMapErase
TensorMapHasKey TensorMapInsert TensorMapLookup
"""
# TensorArray kinds come in three versions with the same inputs.
_VERSIONS = ("", "V2", "V3")

FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(ALIAS_KINDS | VARIABLE_READ_KINDS, FREE),
    **{
        kind: FREE
        for kinds in (_SEVERAL_ALIASES, _SHAPES, _SOURCES, _ORDER, _ITEMS)
        for kind in kinds.split()
    },
    **dict.fromkeys(("TensorListStack", "TensorListGather"), Formula(nothing, copied_out)),
    **dict.fromkeys(
        ("TensorListConcat", "TensorListConcatV2"), Formula(nothing, _copied_first_out)
    ),
    **dict.fromkeys(
        ("TensorListFromTensor", "TensorListScatter", "TensorListScatterV2", "TensorListSplit"),
        Formula(nothing, _copied_in(0)),
    ),
    "TensorListScatterIntoExistingList": Formula(nothing, _copied_in(1)),
    **{f"TensorArrayGather{v}": Formula(nothing, copied_out) for v in _VERSIONS},
    **{f"TensorArrayConcat{v}": Formula(nothing, _copied_first_out) for v in _VERSIONS},
    **{f"TensorArrayScatter{v}": Formula(nothing, _copied_in(2)) for v in _VERSIONS},
    **{f"TensorArraySplit{v}": Formula(nothing, _copied_in(1)) for v in _VERSIONS},
    "TensorArrayPack": Formula(nothing, copied_out),
    "TensorArrayUnpack": Formula(nothing, _copied_in(1)),
}
