"""Label rules of data sets whose label is not a stored class: structured tasks, maps, lists.

Each rule names the features it reads and maps them to an int64 class. The bins are half-open
on the left: a distance equal to an edge belongs to the bin below it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

CLEVR_DISTANCE_EDGES = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0)
KITTI_DISTANCE_EDGES = (-100.0, 8.0, 20.0, 999.0)
# The numbers that Cityscapes' annotators wrote, of the 19 classes in the order that is scored.
_CITYSCAPES_IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
_KITTI_VEHICLES = 3  # Car 0, Van 1, Truck 2; a Tram (6) is not a vehicle here
_KITTI_NO_VEHICLE = 1000.0


class LabelRule(NamedTuple):
    """A rule: `features` in TFDS's notation of partial decoding, and the class they give."""

    features: Mapping[str, Any]
    classify: Callable[[Mapping[str, Any]], tf.Tensor]


def _bin(value: tf.Tensor, edges: tuple[float, ...]) -> tf.Tensor:
    """Returns the largest i with `edges[i] < value`, int64."""
    return tf.reduce_sum(tf.cast(tf.constant(edges) < value, tf.int64)) - 1


def _kitti_distance(example):
    objects = example["objects"]
    depth = tf.boolean_mask(objects["location"][:, 2], objects["type"] < _KITTI_VEHICLES)
    nearest = tf.reduce_min(tf.concat([depth, [_KITTI_NO_VEHICLE]], axis=0))
    return _bin(nearest, KITTI_DISTANCE_EDGES)


def _cityscapes_mask(example):
    scored = {number: label for label, number in enumerate(_CITYSCAPES_IDS)}
    classes = tf.constant([scored.get(number, -1) for number in range(256)], tf.int32)
    return tf.gather(classes, tf.cast(example["segmentation_label"], tf.int32))


RULES = {
    "clevr_count": LabelRule(
        {"objects": {"size": True}},
        lambda one: tf.shape(one["objects"]["size"], tf.int64)[0] - 3,
    ),
    "clevr_distance": LabelRule(
        {"objects": {"pixel_coords": True}},
        lambda one: _bin(tf.reduce_min(one["objects"]["pixel_coords"][:, 2]), CLEVR_DISTANCE_EDGES),
    ),
    "kitti_distance": LabelRule({"objects": {"type": True, "location": True}}, _kitti_distance),
    "dsprites_location": LabelRule(
        {"label_x_position": True}, lambda one: one["label_x_position"] // 2
    ),
    # 1 to 3: pet, background and border.
    "pet_mask": LabelRule(
        {"segmentation_mask": True},
        lambda one: tf.cast(one["segmentation_mask"], tf.int32) - 1,
    ),
    # The numbers of the attributes that a face has, in alphabetical order.
    "celeb_a_attributes": LabelRule(
        {"attributes": True},
        lambda one: tf.where([one["attributes"][name] for name in sorted(one["attributes"])])[:, 0],
    ),
    "coco_classes": LabelRule({"objects": {"label": True}}, lambda one: one["objects"]["label"]),
    "cityscapes_mask": LabelRule({"segmentation_label": True}, _cityscapes_mask),
    "dsprites_orientation": LabelRule(
        {"label_orientation": True},
        lambda one: tf.cast(tf.cast(one["label_orientation"], tf.float32) // 2.5, tf.int64),
    ),
}


def rule(label: str) -> LabelRule:
    """Returns the rule named `label`, or the one that reads the feature of that name."""
    return RULES.get(label) or LabelRule({label: True}, lambda example: example[label])
