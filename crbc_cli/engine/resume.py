"""Which outputs are there already, whole and made the same way."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from crbc_cli.logs.write import METADATA_KEY, Target

__all__ = ["made_as"]


def made_as(target: Target, expected: Mapping[str, Any]) -> bool:
    """Whether an output is there and says that it was made as `expected` says.

    Outputs appear whole, so one that is there is whole. What was remarked (`notes`) does not count:
    it follows from the inputs and options.
    """
    found = _metadata(target)
    wanted = json.loads(json.dumps(expected))
    return found is not None and {k: v for k, v in found.items() if k != "notes"} == wanted


def _metadata(target: Target) -> dict[str, Any] | None:
    """What an output says about how it was made; None where there is none that says anything."""
    path = Path(target.name)
    if target.is_stream or not path.is_file():
        return None
    try:
        if target.format == "parquet":
            text: str | bytes = pl.read_parquet_metadata(path)[METADATA_KEY]
        elif target.format == "arrow":
            import pyarrow as pa

            with pa.OSFile(str(path)) as file:
                text = pa.ipc.open_stream(file).schema.metadata[METADATA_KEY.encode()]
        elif target.format == "safetensors":
            with path.open("rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            text = header["__metadata__"][METADATA_KEY]
        elif target.beside is not None:
            text = Path(target.beside.name).read_bytes()
        else:
            return None
        found = json.loads(text)
    except Exception:  # whatever else stands there, it is not an output of this run
        return None
    return found if isinstance(found, dict) else None
