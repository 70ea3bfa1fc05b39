"""Builders of well-known families of models, from a size, a seed, points or images; each returns a Model."""

from tightmap.problems.images import bad_pixels, disparity_picture, read_image, shrink
from tightmap.problems.inpainting import inpainting, inpainting_regions
from tightmap.problems.stereo import STEREO_PRESETS, stereo

__all__ = [
    "STEREO_PRESETS",
    "bad_pixels",
    "disparity_picture",
    "inpainting",
    "inpainting_regions",
    "read_image",
    "shrink",
    "stereo",
]
