"""Completions of trainers that log no groups and no steps: TRL, ms-swift, SkyRL, AReaL.

One row is one rollout, kept with all its columns, so that `--audit advantage` finds the logged
advantage and `--success-when` any reward. `step` is the training step there: `global_step` here.

Writers: TRL 1.10.0.dev0 (f2cd57710), `completions/completions_{step:05d}.parquet` of the last
generation batch on logging steps; ms-swift (3602360a5), `completions.jsonl`, one line per log step
whose values are lists (the Megatron variant says `gen_step`); SkyRL (a9564572e), `dumped_evals`;
AReaL 1.0.4 (4aef98d8d), `{task_id}.jsonl`, appended to, one sequence per line with the task it is
of.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks, step_table

__all__ = ["AREAL", "MS_SWIFT", "SKYRL", "TRL"]

_TRAINING_STEPS = ("step", "gen_step")


def _table(
    dump: Dump, records: Iterator[tuple[int, Any]], remarks: Remarks, prompt: str, response: str
) -> pl.DataFrame:
    rows = []
    for number, (index, record) in enumerate(records):
        row = {
            "rollout_id": number,
            "step": 0,
            "action": record.get(response),
            "prompt": record.get(prompt),
        }
        own = {k: v for k, v in record.items() if k not in (*_TRAINING_STEPS, "rollout_id")}
        step = next((record[name] for name in _TRAINING_STEPS if name in record), None)
        rows.append(row | own | {"global_step": step, "source_record": index})
    remarks.say("rollout_id", "each completion is taken for one rollout")
    return step_table(dump, rows, remarks)


def _is_transposed(dump: Dump) -> bool:
    return (
        {"prompt", "completion"} <= dump.keys
        and dump.container != "parquet"
        and all(isinstance(value, list) for value in dump.first.values())
    )


def _read_transposed(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    return _table(dump, _rows_of_columns(dump), remarks, "prompt", "completion")


def _rows_of_columns(dump: Dump) -> Iterator[tuple[int, dict[str, Any]]]:
    for index, record in dump.records():
        columns = {k: v for k, v in record.items() if isinstance(v, list)}
        lengths = {len(values) for values in columns.values()}
        if len(lengths) > 1:
            raise InputError("has lists of different length", dump.where(index))
        for values in zip(*columns.values(), strict=True):
            yield index, dict(zip(columns, values, strict=True))


def _read_trl(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    return _table(dump, dump.records(), remarks, "prompt", "completion")


def _read_skyrl(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    return _table(dump, dump.records(), remarks, "input_prompt", "output_response")


def _read_areal(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    remarks.say("group", "task_id says which sequences had the same task: --group-by task_id")
    return _table(dump, dump.records(), remarks, "prompt", "completion")


def _is_skyrl(dump: Dump) -> bool:
    return isinstance(dump.first, Mapping) and {
        "input_prompt",
        "output_response",
        "score",
    } <= set(dump.first)


TRL = Format(
    name="trl",
    title="TRL completions",
    writer="TRL 1.10.0.dev0 (f2cd57710)",
    recognises=lambda dump: {"step", "prompt", "completion", "advantage"} <= dump.keys,
    read=_read_trl,
    rollout="row",
    lacks="prompt, completion, rewards and advantage of the last generation batch, without group, "
    "steps or states",
    hook="trl",
)

MS_SWIFT = Format(
    name="ms-swift",
    title="ms-swift completions",
    writer="ms-swift (3602360a5)",
    recognises=_is_transposed,
    read=_read_transposed,
    rollout="list position",
    lacks="prompts, completions, rewards and advantages of each log step, without group, steps or "
    "states",
    hook="ms-swift",
)

SKYRL = Format(
    name="skyrl",
    title="SkyRL evaluation dumps",
    writer="SkyRL (a9564572e), dumped_evals",
    recognises=_is_skyrl,
    read=_read_skyrl,
    rollout="row",
    lacks="prompt, response and score, without group, steps or states",
    hook="skyrl",
)

AREAL = Format(
    name="areal",
    title="AReaL rollout dumps",
    writer="AReaL 1.0.4 (4aef98d8d)",
    recognises=lambda dump: {"task_id", "sample_idx", "tail_version"} <= dump.keys,
    read=_read_areal,
    group="`task_id`",
    rollout="`sample_idx`",
    lacks="one sequence per line (task_id, sample_idx, reward), without steps or states",
    hook="areal",
)
