"""Credit as plain vectors: safetensors without any package, `.pt` through torch."""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl
from numpy.typing import NDArray

from crbc_cli.errors import OptionError
from crbc_cli.logs.write import METADATA_KEY, Target

__all__ = ["require_torch", "write_vectors"]

_DTYPES = {"float32": "F32", "int64": "I64"}


def require_torch(what: str) -> Any:
    """The torch module.

    Args:
      what: what needs it, for the message.
    Raises:
      OptionError: it is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise OptionError(
            f"{what} needs torch", todo="run python -m pip install 'crbc-cli[torch]'"
        ) from error
    return torch


def write_vectors(emitted: pl.DataFrame, target: Target, metadata: Mapping[str, Any]) -> None:
    """Writes `advantage` (float32) and `source_row` (int64) of the rows that have an advantage.

    A vector has no nulls: rows without an advantage are absent, and `source_row` says which are
    there, in input order.

    Args:
      emitted: rows of one input, with `advantage` and `source_row`.
      target: destination; its format is "safetensors" or "pt".
      metadata: how it was made, stored as JSON under the key `crbc`.
    Raises:
      OutputError: it cannot be written.
      OptionError: `.pt` without torch.
    """
    rows = emitted.filter(pl.col("advantage").is_not_null())
    vectors = {
        "source_row": rows["source_row"].cast(pl.Int64).to_numpy(),  # first, so both are aligned
        "advantage": rows["advantage"].to_numpy(),
    }
    text = json.dumps(metadata, ensure_ascii=False, sort_keys=True)
    if target.format == "pt":
        torch = require_torch("--emit pt")
        tensors = {name: torch.from_numpy(vector.copy()) for name, vector in vectors.items()}
        with target.open() as stream:
            torch.save({**tensors, METADATA_KEY: text}, stream)
        return
    with target.open() as stream:
        stream.write(_safetensors(vectors, text))


def _safetensors(vectors: Mapping[str, NDArray[Any]], metadata: str) -> bytes:
    """Length of the header (u64, little endian), JSON header padded to 8 bytes, raw data.

    Source: the format section of the safetensors project's README, version 0.8.
    """
    header: dict[str, Any] = {"__metadata__": {METADATA_KEY: metadata}}
    start = 0
    for name, vector in vectors.items():
        end = start + vector.nbytes
        header[name] = {
            "dtype": _DTYPES[vector.dtype.name],
            "shape": list(vector.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(v.astype(v.dtype.newbyteorder("<")).tobytes() for v in vectors.values())
    return len(text).to_bytes(8, "little") + text + data
