"""Rows of verl's DataProto, however a user saved it: pickled, through torch.save, or as a table,
also as W&B's table files ({"columns": […], "data": [[…], …]}).

`non_tensor_batch` holds object arrays, one entry per row; tensors of tokens are not looked at.
Read: verl 0.10.0.dev (1dda039b9), `DataProto.__getstate__` = (bytes of the tensors,
non_tensor_batch, meta_info); the verl-agent forks save `DataProto.__dict__`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from crbc_cli.errors import InputError
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import unwrapped
from crbc_cli.logs.formats.unpickle import Stranger

__all__ = ["row_keys", "rows_of"]

_CONTAINERS = ("torch", "pickle")


def row_keys(dump: Dump) -> frozenset[str]:
    """Names that each row has."""
    if _is_wandb(dump):
        return frozenset(map(str, dump.first["columns"]))
    if dump.container not in _CONTAINERS:
        return dump.keys
    if isinstance(dump.first, Mapping) and isinstance(dump.document, list):
        return dump.keys
    return frozenset(map(str, _columns(dump.first)))


def rows_of(dump: Dump) -> Iterator[tuple[int, dict[str, Any]]]:
    """(index, row), values out of arrays and lists of length one.

    Raises:
      InputError: columns of different length.
    """
    if _is_wandb(dump):
        for index, values in enumerate(dump.first["data"]):
            yield index, dict(zip(map(str, dump.first["columns"]), values, strict=False))
        return
    if dump.container not in _CONTAINERS or isinstance(dump.document, list):
        for index, record in dump.records():
            if not isinstance(record, Mapping):
                raise InputError("is no object", dump.where(index))
            yield index, {str(k): unwrapped(v) for k, v in record.items()}
        return
    columns = {str(k): _listed(v) for k, v in _columns(dump.document).items()}
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise InputError("has columns of different length", dump.name)
    for index in range(lengths.pop() if lengths else 0):
        yield index, {k: unwrapped(values[index]) for k, values in columns.items()}


def _is_wandb(dump: Dump) -> bool:
    return (
        {"columns", "data"} <= dump.keys
        and isinstance(dump.first["columns"], list)
        and isinstance(dump.first["data"], list)
    )


def _columns(document: Any) -> Mapping[Any, Any]:
    members = _members(document)
    inside = members.get("non_tensor_batch", members)
    return inside if isinstance(inside, Mapping) else {}


def _members(document: Any) -> Mapping[Any, Any]:
    if isinstance(document, Mapping):
        return document
    state = document.state if isinstance(document, Stranger) else None
    if isinstance(state, tuple) and len(state) == 3 and isinstance(state[1], Mapping):
        return {"non_tensor_batch": state[1]}
    if isinstance(state, Mapping):
        inner = state.get("__dict__")
        return inner if isinstance(inner, Mapping) else state
    return {}


def _listed(values: Any) -> list[Any]:
    if hasattr(values, "tolist"):
        return list(values)
    return values if isinstance(values, list) else list(values) if values is not None else []
