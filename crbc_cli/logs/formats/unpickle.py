"""Pickles read without running them: every class and function named in one becomes inert.

A pickle is a program that may call anything. Here the only things it can call are containers and
the rebuilding of numpy arrays and torch tensors from their bytes; whatever else it names becomes a
`Stranger`, which remembers its name, arguments and state and does nothing. So dumps of trainers
that are not installed open, and hostile files do no harm.

Layouts: Python pickle protocols 0-5; zip archives of `torch.save` (torch 1.6 and later:
`NAME/data.pkl` and one member per storage below `NAME/data/`).
"""

import codecs
import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Stranger", "Tensor", "UnpickleError", "load_pickle", "load_torch"]


class UnpickleError(Exception):
    """The bytes are no pickle, or one that cannot be rebuilt without its program."""


class Stranger:
    """Stands for an object of an unknown class or the result of an unknown call.

    Attributes:
      name: dotted name of the class or function.
      args: arguments it was made with.
      state: what it was to be restored from.
      items: members set or appended one by one.
    """

    name = ""

    args: tuple[Any, ...]
    state: Any
    items: list[Any]

    def __new__(cls, *args: Any, **named: Any) -> "Stranger":
        """A pickle may make objects without initialising them."""
        made = super().__new__(cls)
        made.args, made.state, made.items = (*args, *named.values()), None, []
        return made

    def __init__(self, *args: Any, **named: Any) -> None:
        """Takes any arguments, which __new__ has kept."""

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))

    def append(self, value: Any) -> None:
        self.items.append(value)

    def extend(self, values: Any) -> None:
        self.items.extend(values)

    def add(self, value: Any) -> None:
        self.items.append(value)

    def __call__(self, *args: Any, **named: Any) -> "Stranger":
        return self

    def __hash__(self) -> int:
        return id(self)


@dataclass(frozen=True)
class Tensor:
    """A torch tensor that is still in its file.

    Attributes:
      read: the storage's bytes.
      kind: name of the storage's class, `FloatStorage` for instance.
      offset, size, stride: in elements.
    """

    read: Callable[[], bytes]
    kind: str
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def numpy(self) -> NDArray[Any]:
        """Its values; bfloat16 as float32.

        Raises:
          UnpickleError: a number type that numpy does not have, or a storage that is too short.
        """
        brain = self.kind == "BFloat16Storage"
        dtype: np.dtype[Any] | None = np.dtype("u2") if brain else _STORAGES.get(self.kind)
        if dtype is None:
            raise UnpickleError(f"holds numbers of {self.kind}")
        values = np.frombuffer(self.read(), dtype)
        if brain:
            values = (values.astype(np.uint32) << 16).view(np.float32)
        last = self.offset + sum((n - 1) * s for n, s in zip(self.size, self.stride, strict=True))
        if 0 in self.size:
            return np.empty(self.size, values.dtype)
        if not (self.offset >= 0 and min(self.stride, default=0) >= 0 and last < len(values)):
            raise UnpickleError("holds a tensor that reaches beyond its numbers")
        steps = [s * values.itemsize for s in self.stride]
        return np.lib.stride_tricks.as_strided(values[self.offset :], self.size, steps).copy()


_STORAGES: dict[str, np.dtype[Any]] = {
    "DoubleStorage": np.dtype(np.float64),
    "FloatStorage": np.dtype(np.float32),
    "HalfStorage": np.dtype(np.float16),
    "LongStorage": np.dtype(np.int64),
    "IntStorage": np.dtype(np.int32),
    "ShortStorage": np.dtype(np.int16),
    "CharStorage": np.dtype(np.int8),
    "ByteStorage": np.dtype(np.uint8),
    "BoolStorage": np.dtype(np.bool_),
}


def load_pickle(data: bytes) -> Any:
    """The object of a pickle.

    Raises:
      UnpickleError: it is damaged, or cannot be rebuilt.
    """
    return _load(io.BytesIO(data), None)


def load_torch(path: Path) -> Any:
    """The object of a `torch.save` archive; tensors as `Tensor`, read when asked for.

    Raises:
      UnpickleError: it is damaged, or cannot be rebuilt.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if n.endswith("/data.pkl"))
            folder = name.removesuffix("data.pkl")
            with archive.open(name) as stream:
                return _load(io.BytesIO(stream.read()), lambda key: _member(path, folder + key))
    except (zipfile.BadZipFile, OSError, StopIteration, EOFError) as error:
        raise UnpickleError(f"is no complete torch file ({error})") from error


def _member(path: Path, name: str) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(name)
    except (zipfile.BadZipFile, OSError, KeyError) as error:
        raise UnpickleError(f"lacks the numbers of a tensor ({error})") from error


def _load(stream: IO[bytes], storage: Callable[[str], bytes] | None) -> Any:
    try:
        return _Inert(stream, storage).load()
    except UnpickleError:
        raise
    except RecursionError as error:
        raise UnpickleError("is nested too deeply") from error
    except Exception as error:  # a damaged pickle can raise anything
        raise UnpickleError(f"is no readable pickle ({type(error).__name__}: {error})") from error


class _Inert(pickle.Unpickler):
    def __init__(self, stream: IO[bytes], storage: Callable[[str], bytes] | None) -> None:
        super().__init__(stream, encoding="bytes")
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")
        known = _KNOWN.get(f"{module}.{name}")
        return known or type("Stranger", (Stranger,), {"name": f"{module}.{name}"})

    def persistent_load(self, pid: Any) -> Any:
        if self._storage is None or not isinstance(pid, tuple) or len(pid) < 3:
            raise UnpickleError("refers to objects outside of it")
        kind, key, read = getattr(pid[1], "name", ""), str(pid[2]), self._storage
        return kind.rpartition(".")[2], lambda: read(f"data/{key}")


def _tensor(
    storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
) -> Any:
    kind, read = storage
    return Tensor(read, kind, int(offset), tuple(size), tuple(stride))


def _encode(text: str, encoding: str = "utf-8") -> bytes:
    """What protocol 2 writes bytes as."""
    if encoding not in ("latin1", "latin-1", "utf-8"):
        raise UnpickleError(f"holds bytes encoded as {encoding}")
    return codecs.encode(text, encoding)


def _reconstruct(kind: Any, shape: Any, code: Any) -> Any:
    """An empty array, filled by its state."""
    if kind is not np.ndarray:
        raise UnpickleError(f"holds an array of {getattr(kind, 'name', kind)}")
    return np.ndarray((0,), np.dtype("b"))


def _scalar(dtype: Any, data: Any = None) -> Any:
    if not isinstance(dtype, np.dtype) or dtype.hasobject or not isinstance(data, bytes):
        raise UnpickleError("holds an odd number")
    return np.frombuffer(data, dtype)[0].item()


def _frombuffer(data: Any, dtype: Any, shape: Any, order: str, *_: Any) -> Any:
    if not isinstance(dtype, np.dtype) or dtype.hasobject:
        raise UnpickleError("holds an odd array")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if order == "F" else "C")


_KNOWN: dict[str, Any] = {
    "collections.OrderedDict": OrderedDict,
    "builtins.set": set,
    "builtins.frozenset": frozenset,
    "builtins.bytearray": bytearray,
    "builtins.complex": complex,
    "builtins.slice": slice,
    "_codecs.encode": _encode,
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
    "numpy._core.multiarray._reconstruct": _reconstruct,
    "numpy._core.multiarray.scalar": _scalar,
    "numpy._core.numeric._frombuffer": _frombuffer,
    "torch._utils._rebuild_tensor_v2": _tensor,
}
