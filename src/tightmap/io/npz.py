"""NumPy's .npy and .npz files, without pickles and without trust: nothing is allocated that the file does not fill."""

from __future__ import annotations

import io
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.io.source import MAX_BYTES, Source

_KINDS = "biufU"  # booleans, integers, floats, text


def read_npy(data: bytes, what: str) -> npt.NDArray[Any]:
    """One array; its header is compared with the bytes that are there before anything is made of it."""
    stream = io.BytesIO(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a header written by Python 2 parses with a warning: ours never are
            version = np.lib.format.read_magic(stream)
            if version == (1, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
            elif version == (2, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
            else:
                raise ModelError(f"{what}: version {version} of the .npy format is not supported")
    except ModelError:
        raise
    except Exception as error:  # NumPy evaluates the header as a literal: damage shows as almost any exception
        raise ModelError(f"{what}: not an .npy array ({type(error).__name__} in its header)") from None
    if dtype.hasobject or dtype.kind not in _KINDS or dtype.names is not None or dtype.subdtype is not None:
        raise ModelError(f"{what}: expected numbers, got {dtype} (nothing is unpickled)")
    body = len(data) - stream.tell()
    count = 1
    for s in shape:
        count *= int(s)
    if any(s < 0 for s in shape) or count * dtype.itemsize != body:
        raise ModelError(f"{what}: shape {shape} of {dtype} needs {count * dtype.itemsize} bytes, got {body}")
    if count == 0:
        return np.zeros(shape, dtype=dtype)
    flat = np.frombuffer(data, dtype=dtype, count=count, offset=stream.tell())
    return flat.reshape(shape, order="F" if fortran else "C").astype(dtype.newbyteorder("="), copy=False)


class Archive:
    """The arrays of an .npz file, read one by one when they are asked for."""

    def __init__(self, source: Source) -> None:
        try:
            self._zip = zipfile.ZipFile(source.stream())
            self._members = {i.filename.removesuffix(".npy"): i for i in self._zip.infolist()}
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError, EOFError, KeyError) as error:
            raise ModelError(f"not an .npz archive ({error})") from None
        total = sum(i.file_size for i in self._members.values())
        if total > MAX_BYTES:
            raise ModelError(f"the arrays promise {total} bytes, the limit is {MAX_BYTES}")

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def names(self) -> list[str]:
        return list(self._members)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        what = f"array '{name[:60]}'"
        if name not in self._members:
            raise ModelError(f"{what}: expected in the archive, got only {', '.join(sorted(self._members)[:12])}")
        member = self._members[name]
        try:
            with self._zip.open(member) as stream:
                data = stream.read(member.file_size + 1)
        except (
            zipfile.BadZipFile,
            zlib.error,
            ValueError,
            NotImplementedError,
            OSError,
            EOFError,
            RuntimeError,
        ) as error:
            raise ModelError(f"{what}: damaged ({error})") from None
        return read_npy(data, what)

    def get(self, name: str, kinds: str, ndim: int) -> npt.NDArray[Any]:
        """An array that must be of certain kinds ("iu" integers, "f" floats …) and dimension."""
        array = self[name]
        if array.dtype.kind not in kinds or array.ndim != ndim:
            wanted = "text" if kinds == "U" else "integers" if kinds == "iu" else "numbers"
            raise ModelError(f"array '{name}': expected {wanted} with {ndim} axes, got {array.dtype} with {array.ndim}")
        return array


def write_npz(stream: IO[bytes], arrays: Mapping[str, npt.NDArray[Any]], compress: bool) -> None:
    """What numpy.savez does, with the same bytes for the same arrays (no dates), and on any stream."""
    archive: IO[bytes] = stream if isinstance(stream, io.BufferedWriter) else io.BytesIO()  # a zip file needs to seek
    with zipfile.ZipFile(archive, "w") as pack:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            member.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            with pack.open(member, "w", force_zip64=True) as part:
                np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)
    if isinstance(archive, io.BytesIO):
        stream.write(archive.getbuffer())
