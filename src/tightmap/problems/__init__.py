"""Builders of well-known families of models, from a size, a seed, points or images; each returns a Model."""

from tightmap.problems.inpainting import inpainting, inpainting_regions

__all__ = ["inpainting", "inpainting_regions"]
