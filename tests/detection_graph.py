"""A frozen SSD detector, as the object-detection exports of TensorFlow 1 are laid out.

Laid out after `ssd_mobilenet_v1` of November 2017, with weights that are drawn: images are resized
one by one in a loop; a MobileNet and four more pairs of convolutions give six feature maps with
1,917 anchors; boxes are decoded; and a loop over the images picks boxes class by class, unrolled:
scores above a threshold, their boxes clipped, non-maximum suppression, then the best of all
classes. Loops are those of TensorFlow 1 (Enter, Switch, Merge).
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

PIXELS = 300
# Filters and stride of each depthwise-separable convolution; the 11th and the 13th are read.
_SEPARABLE = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
_EXTRA = ((256, 512), (128, 256), (128, 256), (64, 128))
_ANCHORS = (3, 6, 6, 6, 6, 6)
_MOST_PER_CLASS = 100
_MOST = 100


class _Weights:
    """Draws the constants of a network."""

    def __init__(self):
        self._random = np.random.default_rng(0)

    def drawn(self, *shape):
        fan_in = max(1, int(np.prod(shape[:-1])))
        values = self._random.normal(0, (2 / fan_in) ** 0.5, shape)
        return tf.constant(values, tf.float32)

    def convolved(self, flow, filters, size, stride=1):
        kernel = self.drawn(size, size, flow.shape[-1], filters)
        return self._normalised(tf.nn.conv2d(flow, kernel, stride, "SAME"))

    def depthwise(self, flow, stride):
        kernel = self.drawn(3, 3, flow.shape[-1], 1)
        strides = (1, stride, stride, 1)
        return self._normalised(tf.nn.depthwise_conv2d(flow, kernel, strides, "SAME"))

    def predicted(self, flow, anchors, numbers):
        """Return so many numbers for each anchor of a feature map."""
        kernel = self.drawn(1, 1, flow.shape[-1], anchors * numbers)
        found = tf.nn.bias_add(tf.nn.conv2d(flow, kernel, 1, "SAME"), tf.zeros(anchors * numbers))
        batch = v1.shape(flow)[0]
        return tf.reshape(found, tf.stack([batch, -1, numbers]))

    def _normalised(self, flow):
        filters = flow.shape[-1]
        scale, offset = tf.ones(filters), tf.zeros(filters)
        found, *_ = v1.nn.fused_batch_norm(flow, scale, offset, offset, scale, is_training=False)
        return tf.nn.relu6(found)


def detector(height, width, classes):
    """Return the graph for one image; its outputs are boxes, scores, classes and their number."""
    v1.disable_control_flow_v2()
    graph = tf.Graph()
    with graph.as_default():
        images = v1.placeholder(tf.uint8, (1, height, width, 3), name="image_tensor")
        with tf.name_scope("Preprocessor"):
            resized = v1.map_fn(_resized, tf.cast(images, tf.float32))
            pixels = (2 / 255) * resized - 1.0
        weights = _Weights()
        with tf.name_scope("FeatureExtractor"):
            maps = _feature_maps(pixels, weights)
        boxes, scores = [], []
        for i, (flow, anchors) in enumerate(zip(maps, _ANCHORS, strict=True)):
            with tf.name_scope(f"BoxPredictor_{i}"):
                boxes.append(weights.predicted(flow, anchors, 4))
                scores.append(weights.predicted(flow, anchors, classes + 1))
        with tf.name_scope("MultipleGridAnchorGenerator"):
            grids = [_grid(*each) for each in zip(maps, _ANCHORS, strict=True)]
            anchors = tf.concat(grids, 0)
        with tf.name_scope("Postprocessor"):
            decoded = _decoded(tf.concat(boxes, 1), anchors)
            likely = tf.sigmoid(tf.concat(scores, 1))[:, :, 1:]
            types = (tf.float32, tf.float32, tf.float32, tf.int32)
            found = v1.map_fn(lambda one: _selected(*one, classes), (decoded, likely), dtype=types)
        for tensor, name in zip(found, ("boxes", "scores", "classes", "number"), strict=True):
            tf.identity(tensor, name=f"detection_{name}")
    v1.enable_control_flow_v2()
    return graph


def _resized(image):
    return tf.squeeze(v1.image.resize_bilinear(tf.expand_dims(image, 0), (PIXELS, PIXELS)), 0)


def _feature_maps(flow, weights):
    flow = weights.convolved(flow, 32, 3, 2)
    found = []
    for i, (filters, stride) in enumerate(_SEPARABLE, 1):
        flow = weights.convolved(weights.depthwise(flow, stride), filters, 1)
        if i in (11, 13):
            found.append(flow)
    for narrow, filters in _EXTRA:
        flow = weights.convolved(weights.convolved(flow, narrow, 1), filters, 3, 2)
        found.append(flow)
    return found


def _grid(flow, count):
    """Return the anchors of a feature map: y, x, height and width of each."""
    shape = v1.shape(flow)
    rows, columns = shape[1], shape[2]
    sizes = tf.sqrt(tf.constant(np.linspace(0.2, 0.95, count), tf.float32))
    y = tf.cast(tf.range(rows), tf.float32) / tf.cast(rows, tf.float32)
    x = tf.cast(tf.range(columns), tf.float32) / tf.cast(columns, tf.float32)
    across, down = tf.meshgrid(x, y)
    centres = tf.stack([tf.reshape(down, [-1, 1]), tf.reshape(across, [-1, 1])], -1)
    centres = tf.reshape(tf.tile(centres, [1, count, 1]), [-1, 2])
    extents = tf.tile(tf.stack([sizes, sizes], -1), tf.stack([rows * columns, 1]))
    return tf.concat([centres, extents], 1)


def _decoded(codes, anchors):
    """Return the corners of boxes: y and x of both."""
    shape = v1.shape(codes)
    tiled = tf.reshape(tf.tile(tf.expand_dims(anchors, 0), tf.stack([shape[0], 1, 1])), [-1, 4])
    y, x, height, width = tf.unstack(tf.transpose(tiled))
    dy, dx, dh, dw = tf.unstack(tf.transpose(tf.reshape(codes, [-1, 4])))
    h, w = tf.exp(dh / 5.0) * height, tf.exp(dw / 5.0) * width
    cy, cx = dy / 10.0 * height + y, dx / 10.0 * width + x
    corners = tf.stack([cy - h / 2.0, cx - w / 2.0, cy + h / 2.0, cx + w / 2.0])
    return tf.reshape(tf.transpose(corners), tf.stack([shape[0], shape[1], 4]))


def _selected(boxes, scores, classes):
    """Return the best boxes of one image, their scores and classes, and how many there are."""
    parts = []
    for label in range(classes):
        with tf.name_scope(f"class_{label}"):
            parts.append(_of_class(boxes, scores, label))
    merged = [tf.concat(each, 0) for each in zip(*parts, strict=True)]
    with tf.name_scope("SortByField"):
        merged = _sorted(merged)
    with tf.name_scope("ClipToWindow"):
        merged = _clipped(merged)
    with tf.name_scope("SortByField_1"):
        merged = _sorted(merged)
    number = tf.minimum(v1.shape(merged[1])[0], _MOST)
    padded = [_padded(each, number) for each in merged]
    return padded[0], padded[1], padded[2], number


def _of_class(boxes, scores, label):
    number = v1.shape(scores)[0]
    own = tf.reshape(tf.slice(scores, [0, label], tf.stack([number, 1])), [-1])
    likely = _gathered([boxes, own], tf.where(tf.greater(own, 0.3)))
    inside = _clipped(likely)
    most = tf.minimum(v1.shape(inside[0])[0], _MOST_PER_CLASS)
    # The op of then, which has no GPU kernel to this day; later versions of it have.
    kept = tf.raw_ops.NonMaxSuppression(
        boxes=inside[0], scores=inside[1], max_output_size=most, iou_threshold=0.6
    )
    chosen = [tf.gather(each, kept) for each in inside]
    return [*chosen, tf.zeros_like(chosen[1]) + float(label)]


def _clipped(fields):
    """Return the boxes that have something within the image, clipped, with their fields."""
    top, left, bottom, right = tf.split(fields[0], 4, 1)
    clip = lambda x: tf.maximum(tf.minimum(x, 1.0), 0.0)  # noqa: E731
    boxes = tf.concat([clip(top), clip(left), clip(bottom), clip(right)], 1)
    top, left, bottom, right = tf.split(boxes, 4, 1)
    area = tf.squeeze((bottom - top) * (right - left), [1])
    return _gathered([boxes, *fields[1:]], tf.where(tf.greater(area, 0.0)))


def _gathered(fields, where):
    chosen = tf.cast(tf.reshape(where, [-1]), tf.int32)
    return [tf.gather(each, chosen) for each in fields]


def _sorted(fields):
    _, order = tf.nn.top_k(fields[1], v1.shape(fields[1])[0])
    return [tf.gather(each, order) for each in fields]


def _padded(tensor, number):
    rest = tensor.shape[1:].as_list()
    cut = tf.slice(tensor, [0] * (1 + len(rest)), tf.stack([number, *rest]))
    padding = tf.stack([[0, _MOST - number], *([0, 0] for _ in rest)])
    return tf.reshape(tf.pad(cut, padding), [_MOST, *rest])


def write(path, height, width, classes=90):
    """Write the graph into a file."""
    Path(path).write_bytes(detector(height, width, classes).as_graph_def().SerializeToString())
