"""Harbor: folders of trials, each with its result and `agent/trajectory.json` in ATIF 1.0-1.8.

Writer: harbor 0.26.0, harbor/models/trajectories and harbor/models/trial. The trajectory knows
neither task nor reward; `result.json` (once `results.json`) does: the group is its task, the
rollout its trial. A trajectory that was continued names the next file in
`continued_trajectory_ref`; what that one repeats is marked as copied context and left out. Rewards
have names; the reward is the one named `reward`, or the only one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.formats.conversation import conversation_rows
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.endings import Endings
from crbc_cli.logs.formats.format import Format, Remarks, required, step_table
from crbc_cli.logs.sources import natural_key
from crbc_cli.notes import counted

__all__ = ["TRAJECTORY", "TRIAL"]

_RESULTS = ("result.json", "results.json")
_TIMEOUTS = ("AgentTimeoutError",)
_FIRST = "agent/trajectory.json"
_LONGEST_CHAIN = 1000


def _is_atif(value: Any) -> bool:
    return isinstance(value, Mapping) and str(value.get("schema_version", "")).startswith("ATIF")


def _is_trial(folder: Path) -> bool:
    return (folder / _FIRST).is_file() and bool(_result_of(folder))


def _result_of(folder: Path) -> str:
    return next((name for name in _RESULTS if (folder / name).is_file()), "")


def _trials(dump: Dump) -> list[Path]:
    """The folder itself if it is a trial, or the trials of a job."""
    if dump.container != "folder":
        return []
    if _is_trial(dump.path):
        return [dump.path]
    inside = [path for path in dump.path.iterdir() if path.is_dir() and _is_trial(path)]
    return sorted(inside, key=lambda path: natural_key(path.name))


@dataclass
class _Tally:
    """What reading several trials ran into."""

    endings: Endings = field(default_factory=Endings)
    copied: int = 0
    continuations: int = 0
    unnamed: set[str] = field(default_factory=set)

    def tell(self, remarks: Remarks) -> None:
        if self.copied:
            copied = counted(self.copied, "step")
            remarks.say("copied_context", f"{copied} of copied context left out")
        if self.continuations:
            remarks.say("continued", f"{counted(self.continuations, 'continuation')} read too")
        if self.unnamed:
            names = ", ".join(sorted(self.unnamed))
            remarks.say("reward", f"several rewards ({names}) and none named reward: none is taken")
        self.endings.tell(remarks)


def _read_trials(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    tally = _Tally()
    rows: list[dict[str, Any]] = []
    for index, folder in enumerate(_trials(dump)):
        rows += _trial_rows(folder, index, tally)
    tally.tell(remarks)
    return step_table(dump, rows, remarks)


def _trial_rows(folder: Path, index: int, tally: _Tally) -> list[dict[str, Any]]:
    result = _json(folder / _result_of(folder))
    error = (result.get("exception_info") or {}).get("exception_type")
    rewards = (result.get("verifier_result") or {}).get("rewards") or {}
    timeout = error in _TIMEOUTS
    if error and not timeout and not (rewards and result.get("reward_valid", True)):
        tally.endings.failed[str(error)] += 1
        return []
    if timeout:
        tally.endings.cut[str(error)] += 1
    reward = rewards.get("reward", next(iter(rewards.values())) if len(rewards) == 1 else None)
    if len(rewards) > 1 and reward is None:
        tally.unnamed |= set(rewards)
    return _rows(
        _chain(folder / _FIRST),
        str(folder),
        tally,
        record=index,
        group_id=required(result, "task_name", str(folder)),
        rollout_id=required(result, "trial_name", str(folder)),
        reward=reward,
        truncated=timeout,
        extra={f"reward_{name}": value for name, value in rewards.items()},
    )


def _read_trajectory(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    tally = _Tally()
    rows: list[dict[str, Any]] = []
    given = Path(dump.name)
    for index, document in dump.records():
        if not _is_atif(document):
            raise InputError("is no ATIF trajectory", dump.where(index))
        single = dump.container == "json" and given.is_file()
        rows += _rows(
            _chain(given) if single and index == 0 else [document],
            dump.where(index),
            tally,
            record=index,
            group_id="",
            rollout_id=document.get("trajectory_id") or document.get("session_id") or index,
        )
    tally.tell(remarks)
    return step_table(
        dump, [{k: v for k, v in r.items() if k != "group_id"} for r in rows], remarks
    )


def _json(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"cannot be read as JSON ({error})", str(path)) from error


def _chain(first: Path) -> list[Any]:
    """A trajectory and those that continue it, in order."""
    parts = [_json(first)]
    seen = {first.name}
    while (after := parts[-1].get("continued_trajectory_ref")) and len(parts) < _LONGEST_CHAIN:
        path = first.parent / Path(after).name
        if path.name in seen or not path.is_file():
            break
        seen.add(path.name)
        parts.append(_json(path))
    return parts


def _rows(parts: list[Any], where: str, tally: _Tally, **rollout: Any) -> list[dict[str, Any]]:
    steps = [step for part in parts for step in required(part, "steps", where)]
    own = [step for step in steps if not step.get("is_copied_context")]
    tally.copied += len(steps) - len(own)
    tally.continuations += len(parts) - 1
    messages: list[dict[str, Any]] = []
    places: list[Any] = []
    for step in own:
        for message in _messages(step):
            messages.append(message)
            places.append(step.get("step_id"))
    rows = conversation_rows(messages, where=where, **rollout)
    tally.endings.empty += not rows
    return [{**row, "step_id": places[row["message_index"]]} for row in rows]


def _messages(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A step as messages: what was said, then what its calls returned."""
    said = {"role": step.get("source"), "content": step.get("message") or ""}
    if step.get("tool_calls"):
        said["tool_calls"] = step["tool_calls"]
    results = (step.get("observation") or {}).get("results") or []
    return [said, *({"role": "tool", "content": r.get("content") or ""} for r in results)]


TRIAL = Format(
    name="harbor",
    title="Harbor trials",
    writer="harbor 0.26.0, trial or job folder with ATIF 1.0-1.8",
    recognises=lambda dump: bool(_trials(dump)),
    read=_read_trials,
    group="`task_name` of the result",
    rollout="`trial_name` of the result",
    step="agent step (`step_id`)",
    state="`observation.results`",
    whole_folder=True,
)
TRAJECTORY = Format(
    name="atif",
    title="ATIF trajectory without its trial",
    writer="harbor 0.26.0, agent/trajectory.json",
    recognises=lambda dump: dump.container in ("json", "jsonl") and _is_atif(dump.first),
    read=_read_trajectory,
    rollout="`trajectory_id`",
    step="agent step (`step_id`)",
    state="`observation.results`",
    lacks="task and reward are in result.json of the trial's folder, which can be given instead",
    only_groups=True,
)
