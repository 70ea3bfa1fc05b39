"""Builders of well-known families of models, from a size, a seed, points or images; each returns a Model."""

from tightmap.problems.images import bad_pixels, disparity_picture, read_image, shrink
from tightmap.problems.inpainting import inpainting, inpainting_regions
from tightmap.problems.matching import match_points, matching, random_points, read_matching
from tightmap.problems.second_order import proposal_disparity, second_order_stereo
from tightmap.problems.segmentation import nested_regions, segment_image, segmentation
from tightmap.problems.stereo import STEREO_PRESETS, stereo

__all__ = [
    "STEREO_PRESETS",
    "bad_pixels",
    "disparity_picture",
    "inpainting",
    "inpainting_regions",
    "match_points",
    "matching",
    "nested_regions",
    "proposal_disparity",
    "random_points",
    "read_image",
    "read_matching",
    "second_order_stereo",
    "segment_image",
    "segmentation",
    "shrink",
    "stereo",
]
