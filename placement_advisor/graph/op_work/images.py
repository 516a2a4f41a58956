"""Images: resizing, cropping, colours, and the selection of boxes in detection models.

An interpolated pixel takes three linear interpolations of 3 flops and the position of its corners
(4), a bicubic one 16 products and sums and its weights. Boxes are compared with the ones selected
so far, each comparison an intersection over union: the count is the most that can happen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.op_work.arithmetic import DIVIDE
from placement_advisor.graph.op_work.formula_parts import (
    Formula,
    bytes_of_all,
    constant,
    moved,
    nothing,
    per_input,
    per_output,
    shape_of,
)

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.signature import Signature

_BILINEAR = 13
_BICUBIC = 2 * 16 + 20
# Corners 4, width and height 4, areas and union 4, one division and a comparison.
_OVERLAP = 13 + DIVIDE


def _suppressed(signature: Signature) -> int:
    boxes = shape_of(signature.inputs[0])[0]
    return boxes * min(boxes, int(constant(signature, 2))) * _OVERLAP


def _suppressed_bytes(signature: Signature) -> int:
    """Read boxes and scores; how many are selected is not known before."""
    return bytes_of_all(signature.inputs[:2])


def _suppressed_per_class(signature: Signature) -> int:
    batch, boxes, classes = shape_of(signature.inputs[1])
    return batch * classes * boxes * min(boxes, int(constant(signature, 2))) * _OVERLAP


FORMULAS: dict[str, Formula] = {
    "ResizeBilinear": Formula(per_output(_BILINEAR), moved),
    "ResizeBilinearGrad": Formula(per_input(_BILINEAR), moved),
    "ResizeBicubic": Formula(per_output(_BICUBIC), moved),
    "ResizeBicubicGrad": Formula(per_input(_BICUBIC), moved),
    "ResizeArea": Formula(per_input(2), moved),
    "ResizeNearestNeighbor": Formula(nothing, moved),
    "ResizeNearestNeighborGrad": Formula(per_input(1), moved),
    "ScaleAndTranslate": Formula(per_output(_BILINEAR), moved),
    "ScaleAndTranslateGrad": Formula(per_input(_BILINEAR), moved),
    "CropAndResize": Formula(per_output(_BILINEAR), moved),
    "CropAndResizeGradImage": Formula(per_input(_BILINEAR), moved),
    "CropAndResizeGradBoxes": Formula(per_input(_BILINEAR), moved),
    "ImageProjectiveTransformV2": Formula(per_output(_BILINEAR + 12 + DIVIDE), moved),
    "ImageProjectiveTransformV3": Formula(per_output(_BILINEAR + 12 + DIVIDE), moved),
    "AdjustContrast": Formula(per_output(3), moved),
    "AdjustContrastv2": Formula(per_output(3), moved),
    "AdjustHue": Formula(per_output(DIVIDE + 10), moved),
    "AdjustSaturation": Formula(per_output(DIVIDE + 10), moved),
    "RGBToHSV": Formula(per_output(DIVIDE + 4), moved),
    "HSVToRGB": Formula(per_output(8), moved),
    "NonMaxSuppression": Formula(_suppressed, _suppressed_bytes),
    "NonMaxSuppressionV2": Formula(_suppressed, _suppressed_bytes),
    "NonMaxSuppressionV3": Formula(_suppressed, _suppressed_bytes),
    "NonMaxSuppressionV4": Formula(_suppressed, _suppressed_bytes),
    "NonMaxSuppressionV5": Formula(_suppressed, _suppressed_bytes),
    "CombinedNonMaxSuppression": Formula(_suppressed_per_class, moved),
}
