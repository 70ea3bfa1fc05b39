"""NumPy's .npy and .npz files, without pickles and without trust: nothing is allocated that the file does not fill."""

from __future__ import annotations

import io
import math
import struct
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.io.source import AXES, MAX_BYTES, Source
from tightmap.runtime.memory import require

_KINDS = "biufU"  # booleans, integers, floats, text
_STORED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# what reading a damaged archive raises (ValueError for strange names and dates, struct.error for cut headers)
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,
    NotImplementedError,
    OSError,
    EOFError,
    RuntimeError,
    OverflowError,
)


class Header(NamedTuple):
    """What an .npy file says about its array."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]


def read_header(stream: IO[bytes], size: int, what: str) -> Header:
    """The header of an array in a stream of ``size`` bytes; it must be about as many as there are."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a header written by Python 2 parses with a warning: ours never are
            version = np.lib.format.read_magic(stream)
            if version == (1, 0):
                header = Header(*np.lib.format.read_array_header_1_0(stream))
            elif version == (2, 0):
                header = Header(*np.lib.format.read_array_header_2_0(stream))
            else:
                raise ModelError(f"{what}: version {version} of the .npy format is not supported")
    except ModelError:
        raise
    except Exception as error:  # NumPy evaluates the header as a literal: damage shows as almost any exception
        raise ModelError(f"{what}: not an .npy array ({type(error).__name__} in its header)") from None
    shape, _, dtype = header
    if dtype.hasobject or dtype.kind not in _KINDS or dtype.names is not None or dtype.subdtype is not None:
        raise ModelError(f"{what}: expected numbers, got {dtype} (nothing is unpickled)")
    body = size - stream.tell()
    if len(shape) > AXES + 2 or min(shape, default=1) < 0 or math.prod(max(s, 1) for s in shape) >= 2**48:
        raise ModelError(f"{what}: expected at most {AXES + 2} axes and 2^48 entries, got {len(shape)} axes")
    needed = math.prod(shape) * dtype.itemsize
    if needed != body or dtype.itemsize == 0:
        raise ModelError(f"{what}: shape {shape} of {dtype} needs {needed} bytes, got {body}")
    return header


def make_array(header: Header, body: bytes, what: str) -> npt.NDArray[Any]:
    """The array of a header and the bytes behind it."""
    shape, fortran, dtype = header
    if 0 in shape:
        return np.zeros(shape, dtype=dtype.newbyteorder("="))
    if dtype.kind == "U" and (np.frombuffer(body, np.dtype("u4").newbyteorder(dtype.byteorder)) >= 0x110000).any():
        raise ModelError(f"{what}: expected text, got numbers that are no characters")
    flat = np.frombuffer(body, dtype=dtype)
    return flat.reshape(shape, order="F" if fortran else "C").astype(dtype.newbyteorder("="), copy=False)


def read_npy(data: bytes, what: str) -> npt.NDArray[Any]:
    """One array out of the bytes of an .npy file."""
    stream = io.BytesIO(data)
    header = read_header(stream, len(data), what)
    return make_array(header, data[stream.tell() :], what)


class Archive:
    """The arrays of an .npz file, read one by one when they are asked for."""

    def __init__(self, source: Source) -> None:
        stream = source.stream()
        try:
            self._zip = zipfile.ZipFile(stream)
            self._members = {i.filename.removesuffix(".npy"): i for i in self._zip.infolist()}
        except (*DAMAGE, KeyError) as error:
            raise ModelError(f"not an .npz archive ({ascii(str(error))[1:-1][:200]})") from None
        odd = [i.filename for i in self._members.values() if i.compress_type not in _STORED]
        if odd:
            raise ModelError(f"array {odd[0][:60]!a}: expected stored or deflated, got another kind of compression")
        self.content = sum(i.file_size for i in self._members.values())  # bytes of all arrays
        if self.content > MAX_BYTES:
            raise ModelError(f"the arrays promise {self.content} bytes, the limit is {MAX_BYTES}")
        require(self.content, f"an archive of {self.content} bytes")

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def listed(self) -> str:
        """The names of some arrays, for messages."""
        return ", ".join(ascii(n)[1:-1][:40] for n in sorted(self._members)[:12]) or "(none)"

    def get(self, name: str, kinds: str, ndim: int | None) -> npt.NDArray[Any]:
        """An array that must be of certain kinds ("iu" integers, "f" floats …) and dimension (None: any).

        Its header tells before its content is unpacked, which may be a thousand times larger than the file.
        """
        what = f"array '{name[:60]}'"
        if name not in self._members:
            raise ModelError(f"{what}: expected in the archive, got only {self.listed()}")
        member = self._members[name]
        try:
            with self._zip.open(member) as stream:
                header = read_header(stream, member.file_size, what)
                if header.dtype.kind not in kinds or ndim not in (None, len(header.shape)):
                    wanted = "text" if kinds == "U" else "integers" if kinds == "iu" else "numbers"
                    got = f"{header.dtype} with {len(header.shape)}"
                    axes = "" if ndim is None else f" with {ndim} axes"
                    raise ModelError(f"{what}: expected {wanted}{axes}, got {got}")
                body = stream.read()
                if len(body) != math.prod(header.shape) * header.dtype.itemsize:
                    raise ModelError(f"{what}: shape {header.shape} of {header.dtype}, got {len(body)} bytes")
        except ModelError:
            raise
        except DAMAGE as error:
            raise ModelError(f"{what}: damaged ({ascii(str(error))[1:-1][:200]})") from None
        return make_array(header, body, what)


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
