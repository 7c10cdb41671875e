"""Flat transcripts of ReAct agents: one text of `> action` lines and the replies between them.

Writer: zjunlp/KnowAgent, Self-Learning/trajs, one JSON line per rollout {name, result, traj}. Text
before the first action is the first observation; `think:` and plan lines are actions as well and
may have an empty reply. `result` is true, false, or the integer 0 where the run was aborted early;
a rollout that crashed before its first action has no text and is no failure.
"""

from typing import Any

import polars as pl

from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.format import Format, Remarks, ending, required, step_table
from crbc_cli.notes import counted

__all__ = ["FORMAT"]

_TEXTS = ("traj", "trajectory", "transcript")
_NAMES = ("name", "task", "task_id", "id")
_RESULTS = ("result", "success", "won")


def _recognises(dump: Dump) -> bool:
    text = next((n for n in _TEXTS if n in dump.keys), None)
    if text is None or not any(name in dump.keys for name in _NAMES):
        return False
    found = dump.first[text]
    return isinstance(found, str) and (not found.strip() or "\n> " in f"\n{found}")


def _read(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    empty = aborted = 0
    outcome = ""
    for index, record in dump.records():
        where = dump.where(index)
        name = next((record[n] for n in _NAMES if n in record), None)
        text = next((record[n] for n in _TEXTS if n in record), None)
        outcome = next((n for n in _RESULTS if n in record), outcome)
        result = record.get(outcome) if outcome else None
        number = seen[str(name)] = seen.get(str(name), -1) + 1
        steps, final = _steps(text or "")
        if not steps:
            empty += 1
            continue
        if result == 0 and result is not False and result is not None:
            aborted += 1
        for t, (observation, action) in enumerate(steps):
            last = t + 1 == len(steps)
            row = {
                "group_id": required({"name": name}, "name", where),
                "rollout_id": number,
                "step": t,
                "observation": observation,
                "action": action,
                **ending(last, success=None if result is None else result is True, cut=False),
                "source_record": index,
            }
            rows.append(row | ({"next_observation": final} if last else {}))
    if outcome:
        remarks.say("outcome", f"success is {outcome}: true alone")
    if aborted:
        remarks.say("aborted", f"{counted(aborted, 'rollout')} with {outcome} 0 counted as failed")
    if empty:
        remarks.say(
            "empty_rollouts",
            f"{counted(empty, 'rollout')} without an action left out",
            warning=True,
        )
    return step_table(dump, rows, remarks)


def _steps(text: str) -> tuple[list[tuple[str, str]], str]:
    """((observation, action) of each step, what came after the last action)."""
    steps: list[tuple[str, str]] = []
    heard: list[str] = []
    for line in text.split("\n"):
        if line.startswith("> "):
            steps.append(("\n".join(heard).strip("\n"), line[2:]))
            heard = []
        else:
            heard.append(line)
    return steps, "\n".join(heard).strip("\n")


FORMAT = Format(
    name="transcript",
    title="flat transcripts (`> action`, reply)",
    writer="zjunlp/KnowAgent, Self-Learning/trajs",
    recognises=_recognises,
    read=_read,
    group="`name`",
    rollout="occurrence of that name",
    step="order of the actions",
    state="the reply before",
)
