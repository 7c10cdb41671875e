"""Batches as trainers hold them in memory, made from one small set of rollouts.

Shapes follow the packages' own types where they could be read (verl 0.9.1 `DataProto`, TRL 1.16
`_generate_and_score_completions`, SkyRL 0.3.0 `GeneratorOutput`, tinker-cookbook 0.6.1
`TrajectoryGroup`, AReaL 1.0.4 `prepare_batch`, ms-swift 4.6.0 reward rows) and the layouts of the
README's format table elsewhere. Tensors are numpy arrays with the few methods of torch that
loaders use; `tests/real/torch` runs the same on torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

import crbc_cli


class Tensor(np.ndarray):
    """A numpy array with torch's `float` and `new_tensor`."""

    def float(self) -> Tensor:
        return self.astype(np.float32)

    def new_tensor(self, values: Any) -> Tensor:
        return np.asarray(values, self.dtype).view(Tensor)


def tensor(values: Any, dtype: Any = np.int64) -> Any:
    return np.asarray(values, dtype).view(Tensor)


@dataclass(frozen=True)
class Rollout:
    """One episode: turns of (observation, action)."""

    group: int
    place: int  # inside its group
    turns: Sequence[tuple[str, str]]
    success: bool


GOLDEN = [
    Rollout(0, 0, [("at S", "go a"), ("at M", "do p")], True),
    Rollout(0, 1, [("at S", "go a"), ("at M", "do q")], False),
    Rollout(0, 2, [("at S", "go b"), ("at N", "go c"), ("at M", "do p")], True),
    Rollout(0, 3, [("at S", "go b"), ("at N", "do d")], False),
]
ROLLOUTS = [
    *GOLDEN,
    Rollout(1, 0, [("in hall", "open door"), ("in room now", "take it")], True),
    Rollout(1, 1, [("in hall", "wait"), ("in hall", "wait"), ("in hall", "open door")], False),
    Rollout(1, 2, [("in hall", "wait")], False),
    Rollout(1, 3, [("in hall", "open door"), ("in room now", "leave")], False),
]
STEPS = [(r, s) for r in ROLLOUTS for s in range(len(r.turns))]


def canonical() -> pa.Table:
    """The rollouts as a step table, in the order of ROLLOUTS."""
    return pa.Table.from_pylist(
        [
            {
                "group_id": r.group,
                "rollout_id": r.place,
                "step": s,
                "observation": r.turns[s][0],
                "action": r.turns[s][1],
                "success": r.success,
                "done": s + 1 == len(r.turns),
            }
            for r, s in STEPS
        ]
    )


def true_credit() -> dict[tuple[int, int, int], float]:
    """(group, place, step) -> advantage as crbc gives it, rounded to float32."""
    table = crbc_cli.credit(canonical())
    keys = zip(
        *(table[name].to_pylist() for name in ("group_id", "rollout_id", "step")), strict=True
    )
    values = np.float32(table["advantage"].to_pylist()).tolist()
    return dict(zip(keys, values, strict=True))


_WORDS = ["<pad>", "<task>"]


def encode(text: str) -> list[int]:
    ids = []
    for word in text.split():
        if word not in _WORDS:
            _WORDS.append(word)
        ids.append(_WORDS.index(word))
    return ids


def decode(ids: Sequence[int], skip_special_tokens: bool = False) -> str:
    del skip_special_tokens
    return " ".join(_WORDS[i] for i in ids if i)


def conversation(rollout: Rollout) -> tuple[list[int], list[int], list[int]]:
    """Prompt tokens, response tokens, and 1 on the model's own response tokens."""
    prompt = encode(rollout.turns[0][0])
    response: list[int] = []
    mask: list[int] = []
    for step, (observation, action) in enumerate(rollout.turns):
        seen = encode(observation) if step else []
        response += seen + encode(action)
        mask += [0] * len(seen) + [1] * len(encode(action))
    return prompt, response, mask


def padded(rows: Sequence[Sequence[int]], *, left: bool = False) -> Any:
    width = max(map(len, rows)) + 1
    fill = [[0] * (width - len(row)) for row in rows]
    return tensor([[*f, *row] if left else [*row, *f] for f, row in zip(fill, rows, strict=True)])


def objects(values: Sequence[Any]) -> Any:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def verl_agent_batch() -> Any:
    """One row per environment step, in the order the rollout loop collects them."""
    masks = padded([[1] * len(encode(r.turns[s][1])) for r, s in STEPS])
    return SimpleNamespace(
        batch={"response_mask": masks},
        non_tensor_batch={
            "uid": objects([f"uid-{r.group}" for r, _ in STEPS]),
            "traj_uid": objects([f"traj-{r.group}-{r.place}" for r, _ in STEPS]),
            "anchor_obs": objects([r.turns[s][0] for r, s in STEPS]),
            "text_actions": objects([f"<action>{r.turns[s][1]}</action>" for r, s in STEPS]),
            "rewards": objects([10.0 * (r.success and s + 1 == len(r.turns)) for r, s in STEPS]),
            "episode_rewards": objects([10.0 * r.success for r, _ in STEPS]),
            "is_action_valid": objects([np.bool_(True)] * len(STEPS)),
        },
    )


def verl_batch() -> Any:
    """One row per conversation."""
    prompts, responses, masks = zip(*map(conversation, ROLLOUTS), strict=True)
    mask = padded(masks)
    scores = mask.float() * 0
    scores[:, 0] = tensor([float(r.success) for r in ROLLOUTS], np.float32)
    return SimpleNamespace(
        batch={
            "prompts": padded(prompts, left=True),
            "responses": padded(responses),
            "response_mask": mask,
            "token_level_scores": scores,
        },
        non_tensor_batch={"uid": objects([f"uid-{r.group}" for r in ROLLOUTS])},
    )


def trl_output() -> dict[str, Any]:
    """What `_generate_and_score_completions` returns, with tool replies masked."""
    prompts, responses, masks = zip(*map(conversation, ROLLOUTS), strict=True)
    return {
        "prompt_ids": padded(prompts, left=True),
        "completion_ids": padded(responses),
        "completion_mask": padded([[1] * len(m) for m in masks]),
        "tool_mask": padded(masks),
    }


def slime_samples() -> list[Any]:
    samples = []
    for index, r in enumerate(ROLLOUTS):
        prompt, response, mask = conversation(r)
        samples.append(
            SimpleNamespace(
                group_index=r.group,
                index=index,
                tokens=prompt + response,
                response_length=len(response),
                loss_mask=mask,
                reward=float(r.success),
                status=SimpleNamespace(value="completed"),
            )
        )
    return samples


def skyrl_output() -> dict[str, Any]:
    """Step-wise generator output: one row per step, prompts holding all that came before."""
    rows: list[tuple[list[int], list[int]]] = []
    for r, s in STEPS:
        before = [t for o, a in r.turns[:s] for t in encode(o) + encode(a)]
        rows.append((before + encode(r.turns[s][0]), encode(r.turns[s][1])))
    last = [s + 1 == len(r.turns) for r, s in STEPS]
    return {
        "prompt_token_ids": [prompt for prompt, _ in rows],
        "response_ids": [response for _, response in rows],
        "rewards": [
            [0.0] * (len(response) - 1) + [float(r.success and end)]
            for (_, response), (r, _), end in zip(rows, STEPS, last, strict=True)
        ],
        "stop_reasons": ["stop"] * len(rows),
        "is_last_step": last,
        "trajectory_ids": [
            SimpleNamespace(instance_id=f"task-{r.group}", repetition_id=r.place) for r, _ in STEPS
        ],
    }


def tinker_groups() -> list[Any]:
    groups = []
    for group in sorted({r.group for r in ROLLOUTS}):
        members = [r for r in ROLLOUTS if r.group == group]
        trajectories = []
        for r in members:
            seen: list[int] = []
            transitions = []
            for s, (observation, action) in enumerate(r.turns):
                prompt = seen + encode(observation)
                seen = prompt + encode(action)
                transitions.append(
                    SimpleNamespace(
                        ob=SimpleNamespace(to_ints=lambda ids=tuple(prompt): list(ids)),
                        ac=SimpleNamespace(tokens=encode(action)),
                        reward=float(r.success and s + 1 == len(r.turns)),
                        episode_done=s + 1 == len(r.turns),
                    )
                )
            trajectories.append(SimpleNamespace(transitions=transitions))
        totals = [float(r.success) for r in members]
        groups.append(
            SimpleNamespace(trajectories_G=trajectories, get_total_rewards=lambda t=totals: t)
        )
    return groups


def areal_batch() -> list[dict[str, Any]]:
    """One entry per task, whose tensors hold the task's samples."""
    batch = []
    for group in sorted({r.group for r in ROLLOUTS}):
        members = [r for r in ROLLOUTS if r.group == group]
        parts = [conversation(r) for r in members]
        batch.append(
            {
                "input_ids": padded([prompt + response for prompt, response, _ in parts]),
                "loss_mask": padded([[0] * len(prompt) + mask for prompt, _, mask in parts]),
                "rewards": tensor([float(r.success) for r in members], np.float32),
            }
        )
    return batch


def messages(rollout: Rollout) -> list[dict[str, str]]:
    found = [{"role": "system", "content": "play"}]
    for step, (observation, action) in enumerate(rollout.turns):
        found.append({"role": "tool" if step else "user", "content": observation})
        found.append({"role": "assistant", "content": action})
    return found


def rllm_episodes() -> list[Any]:
    return [
        SimpleNamespace(
            id=f"task-{r.group}:{r.place}",
            is_correct=r.success,
            termination_reason=SimpleNamespace(value="env_done"),
            trajectories=[
                SimpleNamespace(
                    name="agent",
                    steps=[
                        SimpleNamespace(
                            observation=observation,
                            action=action,
                            reward=0.0,
                            done=s + 1 == len(r.turns),
                            response_ids=encode(action),
                            advantage=None,
                        )
                        for s, (observation, action) in enumerate(r.turns)
                    ],
                )
            ],
        )
        for r in ROLLOUTS
    ]


def traces() -> list[Any]:
    """verifiers v1 traces: user and assistant nodes in turn."""
    return [
        SimpleNamespace(
            id=f"trace-{r.group}-{r.place}",
            nodes=[
                SimpleNamespace(
                    sampled=bool(k % 2),
                    token_ids=encode(text),
                    mask=[k % 2] * len(encode(text)),
                )
                for k, text in enumerate(t for turn in r.turns for t in turn)
            ],
        )
        for r in ROLLOUTS
    ]
