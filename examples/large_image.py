"""Segment an image that is larger than memory into two labels, with a certified gap.

    python examples/large_image.py --size 4000 --folder large --workers 2 --memory 300e6

The image is made first, piece by piece: discs on a dark ground with noise, one byte per pixel, in a memory-mapped file.
Unaries are computed from its rows when they are needed, iterates are kept in files of the folder, labels are written
to a .npy file there.  Started again after an interruption, the run goes on where it was.  Disk: 53 bytes per pixel.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

import tightmap as tm

CELL = 200  # pixels of the square around a disc


def make_image(path: Path, size: int) -> None:
    """Discs of radii from 20 to 90 on a regular grid; noise that hides single pixels."""
    image = np.lib.format.open_memmap(path, "w+", np.uint8, (size, size))
    radii = np.random.default_rng(0).uniform(20, 90, (size // CELL + 1, size // CELL + 1))
    columns = np.arange(size)
    for first in range(0, size, 64):
        rows = np.arange(first, min(first + 64, size))[:, None]
        distance = np.hypot(rows % CELL - CELL / 2, columns % CELL - CELL / 2)
        inside = distance < radii[rows // CELL, columns // CELL]
        noise = np.random.default_rng([1, first]).normal(0, 60, inside.shape)
        image[first : first + len(rows)] = np.clip(np.where(inside, 160, 95) + noise, 0, 255)
    image.flush()


def unaries(path: str, size: int, first: int, last: int) -> npt.NDArray[np.float32]:
    """Squared distances from two grey values, in units of the noise."""
    header = Path(path).stat().st_size - size * size
    rows = np.fromfile(path, np.uint8, (last - first) * size, offset=header + first * size).reshape(-1, size)
    grey = rows[..., None].astype(np.float32)
    return ((grey - np.array([95, 160], np.float32)) / 60) ** 2 / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=int, default=4000, help="rows and columns")
    parser.add_argument("--folder", type=Path, default=Path("large_image"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", type=float, default=300e6, help="bytes of rows that a worker has at a time")
    parser.add_argument("--tile", type=int, default=256, help="rows; higher ones give a better bound")
    parser.add_argument("--growth", type=float, default=1.02, help="of the penalty: 1.01 takes 250 iterations, not 150")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    image = options.folder / "image.npy"
    if not image.exists():
        beside = options.folder / "image.tmp.npy"
        make_image(beside, options.size)
        beside.rename(image)
    begin = time.perf_counter()

    def progress(p: object) -> None:
        text = f"{time.perf_counter() - begin:7.1f} s  {p.phase:8}"  # type: ignore[attr-defined]
        text += f" iteration {p.total:5}  residual {p.residual:.1e}  energy {p.energy:.1f}"  # type: ignore[attr-defined]
        print(text, file=sys.stderr, flush=True)

    result = tm.scale.solve_rows(
        partial(unaries, str(image), options.size), 1.0, shape=(options.size, options.size, 2),
        workers=options.workers, memory=options.memory, tile=options.tile, growth=options.growth,
        checkpoint=options.folder / "checkpoint", labels=options.folder / "labels.npy", progress=progress,
    )  # fmt: skip
    print(f"{options.size} x {options.size} pixels, {result.iterations} iterations, {result.elapsed:.1f} s")
    print(f"energy {result.energy:.3f}, lower bound {result.lower_bound:.3f}, gap {result.gap / result.energy:.4%}")
    print(f"labels {result.digest}")


if __name__ == "__main__":
    main()
