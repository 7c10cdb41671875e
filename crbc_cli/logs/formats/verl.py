"""verl's text dumps: `trainer.rollout_data_dir`, `trainer.validation_data_dir`.

Writer: verl 0.10.0.dev (1dda039b9), `_dump_generations`. The file is `{global_step}.jsonl`; `step`
counts training steps and `score` is a sum over tokens.

* v1 trainer: `uid` is `{group}_{rollout}_{output}`, one row per output of a rollout, and `input` is
  the whole prompt that the output answers. Padding rows have a uid of another shape.
* legacy trainer: the whole conversation of a rollout as two texts.
* verl-agent (which inherits the switch) writes one row per environment step without ids, shuffled
  and with copies; RAGEN one row per rollout. Neither has `gts`.
"""

import re
from typing import Any

import polars as pl

from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks, required, step_table
from crbc_cli.notes import counted

__all__ = ["LEGACY", "NAMELESS", "V1"]

_COMPOSITE = re.compile(r"(?P<group>.+)_(?P<rollout>\d+)_(?P<output>\d+)", re.DOTALL)
_WRITER = "verl 0.10.0.dev (1dda039b9), `_dump_generations`"
_TEXT = {"input", "output", "score", "step"}


def _is_v1(dump: Dump) -> bool:
    if not {"input", "output", "score", "step", "uid"} <= dump.keys:
        return False
    return any(_COMPOSITE.fullmatch(str(row.get("uid"))) for row in _first_rows(dump))


def _first_rows(dump: Dump) -> list[dict[str, Any]]:
    """A few rows: the first may be padding."""
    rows = zip(range(64), dump.records(), strict=False)
    return [row for _, (_, row) in rows if isinstance(row, dict)]


def _read_v1(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    padding = 0
    for index, record in dump.records():
        parts = _COMPOSITE.fullmatch(str(required(record, "uid", dump.where(index))))
        if parts is None:
            padding += 1
            continue
        row = {
            "group_id": parts["group"],
            "rollout_id": int(parts["rollout"]),
            "step": int(parts["output"]),
            "observation": record.get("input"),
            "action": record.get("output"),
        }
        own = {k: v for k, v in record.items() if k not in ("input", "output", "step")}
        rows.append(row | own | {"global_step": record.get("step"), "source_record": index})
    if padding:
        remarks.say(
            "padding", f"{counted(padding, 'row')} left out as padding: uid is not GROUP_N_N"
        )
    remarks.say(
        "observation",
        "observation is input, the whole prompt; where it repeats the history, "
        "anchor rules have to cut it",
    )
    first = {(row["group_id"], row["rollout_id"]): row["observation"] for row in reversed(rows)}
    for row in rows:
        row["prompt"] = first[row["group_id"], row["rollout_id"]]
    return step_table(dump, rows, remarks)


def _read_texts(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows = []
    for index, record in dump.records():
        row = {
            "rollout_id": index,
            "step": 0,
            "action": record.get("output"),
            "prompt": record.get("input"),
        }
        own = {k: v for k, v in record.items() if k != "step"}
        rows.append(row | own | {"global_step": record.get("step"), "source_record": index})
    remarks.say("rollout_id", "each row is taken for one rollout")
    return step_table(dump, rows, remarks)


V1 = Format(
    name="verl",
    title="verl rollouts",
    writer=f"{_WRITER}, trainer.use_v1",
    recognises=_is_v1,
    read=_read_v1,
    group="`uid` before its last two `_`",
    rollout="next part of `uid`",
    step="last part of `uid`",
    state="`input`, the whole prompt",
)

LEGACY = Format(
    name="verl-legacy",
    title="verl texts (legacy trainer)",
    writer=_WRITER,
    recognises=lambda dump: {*_TEXT, "gts"} <= dump.keys and "steps" not in dump.first,
    read=_read_texts,
    rollout="row",
    lacks="input, output and score of whole rollouts, without group, steps or states",
    hook="verl",
)

NAMELESS = Format(
    name="verl-agent-texts",
    title="verl-agent or RAGEN texts (rollout_data_dir)",
    writer="verl-agent lineage and RAGEN 20daedc, inherited from verl",
    recognises=lambda dump: dump.keys >= _TEXT and "steps" not in dump.first,
    read=_read_texts,
    rollout="row",
    lacks="input, output and score without group, rollout, step or state; verl-agent writes one "
    "row per environment step, shuffled and with copies, and repeats the episode's score on each",
    hook="verl-agent",
)
