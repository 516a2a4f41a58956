"""Texts and lookup tables.

How long texts are is not in a graph, so that a text counts as a short word: the string object
(24 bytes) is read or written, and the integer operations are those of about eight characters.
Measured on one core with 6-character words: hashing 7 ns, changing case 21 ns, a regular
expression 80 ns, printing a number 50 ns, reading one 30 ns; a core that does not vectorise
retires about 8 operations per ns.

A key looked up in a table moves the table's slot and entry, two cache lines at random places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.op_work.formula_parts import (
    Formula,
    bytes_of,
    bytes_of_all,
    elements,
    moved,
    per_input,
    per_output,
)
from placement_advisor.graph.op_work.gather_scatter import PROBE_FLOPS, probed_bytes

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.signature import Signature

_HASH = 56
_REWRITE = 170
_MATCH = 640
_PRINT = 400
_PARSE = 240


def _looked_up(signature: Signature) -> int:
    """Probe the table for every key: (table, keys, default)."""
    hashing = _HASH if signature.inputs[1].dtype == "string" else 0
    return (PROBE_FLOPS + hashing) * elements(signature.inputs[1])


def _looked_up_bytes(signature: Signature) -> int:
    keys = signature.inputs[1]
    tensors = bytes_of_all(signature.inputs[1:]) + bytes_of_all(signature.outputs)
    return tensors + probed_bytes(elements(keys))


def _split(signature: Signature) -> int:
    """Copy each word; their number is known only where the output's shape is."""
    return _REWRITE * elements(signature.outputs[1])


def _split_bytes(signature: Signature) -> int:
    return bytes_of(signature.inputs[0]) + bytes_of_all(signature.outputs)


def _crossed(signature: Signature) -> int:
    """Hash each crossed value; their number is known only where the output's shape is."""
    return _HASH * elements(signature.outputs[1])


def _joined(signature: Signature) -> int:
    return _REWRITE * sum(elements(spec) for spec in signature.inputs)


def _reduced(signature: Signature) -> int:
    return _REWRITE * elements(signature.inputs[0])


def _on_texts(operations: int) -> Formula:
    return Formula(per_input(operations), moved)


_LOOKUP = Formula(_looked_up, _looked_up_bytes)

FORMULAS: dict[str, Formula] = {
    "LookupTableFind": _LOOKUP,
    "LookupTableFindV2": _LOOKUP,
    "LookupTableInsert": _LOOKUP,
    "LookupTableInsertV2": _LOOKUP,
    "LookupTableImport": _LOOKUP,
    "LookupTableImportV2": _LOOKUP,
    "LookupTableRemoveV2": _LOOKUP,
    "StringToHashBucket": _on_texts(_HASH),
    "StringToHashBucketFast": _on_texts(_HASH),
    "TensorToHashBucketFast": _on_texts(_PRINT),
    # SipHash mixes every word of a text several times over.
    "StringToHashBucketStrong": _on_texts(4 * _HASH),
    "StringLength": _on_texts(2),
    "StringLower": _on_texts(_REWRITE),
    "StringUpper": _on_texts(_REWRITE),
    "StringStrip": _on_texts(_REWRITE),
    "Substr": _on_texts(_REWRITE),
    "RegexReplace": _on_texts(_MATCH),
    "StaticRegexReplace": _on_texts(_MATCH),
    "RegexFullMatch": _on_texts(_MATCH),
    "StaticRegexFullMatch": _on_texts(_MATCH),
    "AsString": Formula(per_output(_PRINT), moved),
    "StringToNumber": _on_texts(_PARSE),
    "StringJoin": Formula(_joined, moved),
    "ReduceJoin": Formula(_reduced, moved),
    "StringSplit": Formula(_split, _split_bytes),
    "StringSplitV2": Formula(_split, _split_bytes),
    "SparseCross": Formula(_crossed, moved),
    "SparseCrossV2": Formula(_crossed, moved),
    "SparseCrossHashed": Formula(_crossed, moved),
    "UnicodeTranscode": _on_texts(_REWRITE),
    "DecodeRaw": Formula(per_output(0), moved),
}
