"""verifiers v1 and prime-rl: `traces.jsonl`, one episode per line, each trace a graph of messages.

Writer: verifiers 0.4.0, verifiers/v1/utils/trace_store.py (null members are left out). `nodes` are
messages with their `parent`; a node that the model made is `sampled`. A path from a root to a leaf
is a branch. Each sampled node is one step, in the order of the nodes of its branch; a node shared
by branches is counted once. A branch that goes on where another was compacted (a link of type
`compaction`) continues that one's rollout; any other branch is a rollout of its own, `ID/1`,
`ID/2`, …, from where it forks, with the trace's reward.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from crbc_cli.errors import InputError
from crbc_cli.logs.formats.conversation import turns
from crbc_cli.logs.formats.dump import Dump
from crbc_cli.logs.formats.endings import Endings
from crbc_cli.logs.formats.format import Format, Remarks, ending, required, step_table
from crbc_cli.notes import counted

__all__ = ["EPISODES", "TRACES", "WHERE", "Reading", "add_episode", "finished", "mean"]

_LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens",
           "compaction_failed")  # fmt: skip
"""Stop conditions that verifiers calls truncation (Trace.is_truncated)."""


@dataclass
class Reading:
    """What is gathered over the episodes of one dump."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    endings: Endings = field(default_factory=Endings)
    branched: int = 0
    others: int = 0
    by_task: bool = False


def _is_episode(dump: Dump) -> bool:
    if not {"env", "task", "traces"} <= dump.keys:
        return False
    traces = dump.first["traces"]
    return isinstance(traces, list) and all(
        isinstance(trace, Mapping) and "nodes" in trace for trace in traces
    )


def _is_trace(dump: Dump) -> bool:
    return {"nodes", "task", "stop_condition"} <= dump.keys or {"nodes", "rewards"} <= dump.keys


def _read_file(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    reading = Reading()
    for index, record in dump.records():
        add_episode(reading, record, index, dump.where(index))
    return finished(dump, reading, remarks)


def _read_traces(dump: Dump, remarks: Remarks) -> pl.DataFrame:
    """Bare traces, each as an episode of its own."""
    reading = Reading()
    for index, record in dump.records():
        episode = {"traces": [record], **{k: record[k] for k in ("task", "info") if k in record}}
        add_episode(reading, {**(record.get("info") or {}), **episode}, index, dump.where(index))
    return finished(dump, reading, remarks)


def finished(dump: Dump, reading: Reading, remarks: Remarks) -> pl.DataFrame:
    if reading.by_task:
        remarks.say("group_id", "episodes without a group: those of one task (key) are one group")
    if reading.branched:
        remarks.say(
            "branches",
            f"{counted(reading.branched, 'trace')} with several branches: each branch is a "
            "rollout from where it forks, with the reward of its trace",
            warning=True,
        )
    if reading.others:
        remarks.say(
            "other_agents", f"{counted(reading.others, 'trace')} of agents that are not trained "
            "left out",
        )  # fmt: skip
    reading.endings.tell(remarks)
    return step_table(dump, reading.rows, remarks)


def add_episode(
    reading: Reading,
    episode: Mapping[str, Any],
    index: int,
    where: str,
    extra: Mapping[str, Any] | None = None,
) -> None:
    traces = required(episode, "traces", where)
    names = {_agent(trace).get("name") for trace in traces}
    group, by_task = _group(episode, where)
    reading.by_task |= by_task
    if not traces:
        reading.endings.failed[_reason(episode)] += 1
    for trace in traces:
        agent = _agent(trace)
        if agent.get("trainable") is False:
            reading.others += 1
            continue
        own = f"{group}:{agent.get('name')}" if len(names) > 1 else group
        more = {"env": _env(episode), "episode_id": episode.get("id"), **(extra or {})}
        _add_trace(reading, trace, own, index, where, more)


def _agent(trace: Mapping[str, Any]) -> Mapping[str, Any]:
    return trace.get("agent") or {}


def _env(episode: Mapping[str, Any]) -> Any:
    env = episode.get("env")
    named = env.get("name") or env.get("id") if isinstance(env, Mapping) else env
    return episode.get("env_name") or named


def _group(episode: Mapping[str, Any], where: str) -> tuple[Any, bool]:
    """The group, and whether it had to be taken from the task."""
    group = episode.get("group")
    given = group.get("id") if isinstance(group, Mapping) else episode.get("group_id")
    if given is not None:
        return given, False
    task = required(episode, "task", where)
    key = task.get("key") or task.get("hash") if isinstance(task, Mapping) else None
    if key is None:
        raise InputError("has neither a group nor a task key", where)
    return key, True


def _add_trace(
    reading: Reading,
    trace: Mapping[str, Any],
    group: Any,
    index: int,
    where: str,
    extra: Mapping[str, Any],
) -> None:
    crashed = trace.get("ok") is False if "ok" in trace else bool(trace.get("errors"))
    if crashed and not trace.get("is_timeout"):
        reading.endings.failed[_reason(trace)] += 1
        return
    rollouts = _rollouts(required(trace, "nodes", where), where)
    if not rollouts:
        reading.endings.empty += 1
        return
    reading.branched += len(rollouts) > 1
    limit = _limit(trace)
    if limit:
        reading.endings.cut[limit] += len(rollouts)
    rewards = trace.get("rewards") or {}
    scores = {f"reward_{name}": r["score"] for name, r in rewards.items() if r}
    total = sum(r["score"] * r.get("weight", 1.0) for r in rewards.values() if r)
    for branch, steps in enumerate(rollouts):
        for number, (node, turn) in enumerate(steps):
            last = number + 1 == len(steps)
            reading.rows.append(
                {
                    "group_id": group,
                    "rollout_id": f"{trace['id']}/{branch}" if branch else trace["id"],
                    "step": number,
                    "observation": turn.observation,
                    "action": turn.action,
                    "reward": (float(total) if last else 0.0) if scores else None,
                    **ending(last, success=None, cut=bool(limit)),
                    "next_observation": turn.reply,
                    "response": turn.response,
                    "trace_id": trace["id"],
                    "node": node,
                    "logged_advantage": mean(trace["nodes"][node].get("advantages")),
                    "agent": _agent(trace).get("name"),
                    "stop_condition": trace.get("stop_condition"),
                    **scores,
                    **extra,
                    "source_record": index,
                }
            )


def _reason(record: Mapping[str, Any]) -> str:
    errors = record.get("errors") or []
    kind = errors[-1].get("type") if errors and isinstance(errors[-1], Mapping) else None
    return str(kind or record.get("stop_condition") or "not ok")


def _limit(trace: Mapping[str, Any]) -> str:
    """What cut a trace, empty if it ended by itself."""
    stop = trace.get("stop_condition")
    if stop in _LIMITS:
        return str(stop)
    if trace.get("is_timeout"):
        return str(stop or "timeout")
    calls = [call for call in trace.get("calls") or [] if not call.get("error")]
    return "response at its length" if calls and calls[-1].get("finish_reason") == "length" else ""


def mean(values: Any) -> float | None:
    return sum(values) / len(values) if isinstance(values, list) and values else None


# --- the graph ------------------------------------------------------------------------------------


def _rollouts(nodes: Sequence[Mapping[str, Any]], where: str) -> list[list[tuple[int, Any]]]:
    """Rollouts of (node, turn), each sampled node in one of them."""
    rollouts: list[list[tuple[int, Any]]] = []
    place: dict[int, int] = {}  # node -> its rollout
    for path in _branches(nodes, where):
        steps = _steps(nodes, path, where)
        fresh = [(node, turn) for node, turn in steps if node not in place]
        if not fresh:
            continue
        before = _continues(nodes[fresh[0][0]])
        number = place.get(before, -1) if before is not None else -1
        if number < 0 or rollouts[number][-1][0] != before:
            number = len(rollouts)
            rollouts.append([])
        rollouts[number] += fresh
        place.update((node, number) for node, _ in fresh)
    return rollouts


def _branches(nodes: Sequence[Mapping[str, Any]], where: str) -> Iterator[list[int]]:
    """Paths from a root to a leaf, by leaf."""
    parents = [node.get("parent") for node in nodes]
    for index, parent in enumerate(parents):
        if parent is not None and not 0 <= parent < index:
            raise InputError(f"node {index} has parent {parent}, which is not before it", where)
    inner = set(parents)
    for leaf in range(len(nodes)):
        if leaf not in inner:
            path: list[int] = []
            node: int | None = leaf
            while node is not None:
                path.append(node)
                node = parents[node]
            yield path[::-1]


def _steps(
    nodes: Sequence[Mapping[str, Any]], path: Sequence[int], where: str
) -> list[tuple[int, Any]]:
    messages = [required(nodes[node], "message", f"{where} node {node}") for node in path]
    sampled = {id(m) for m, node in zip(messages, path, strict=True) if nodes[node].get("sampled")}
    made = turns(messages, where, lambda message: id(message) in sampled)
    return [(path[turn.index], turn) for turn in made]


def _continues(node: Mapping[str, Any]) -> int | None:
    """The node whose compacted context this one goes on from."""
    links: Iterable[Mapping[str, Any]] = node.get("semantic_parents") or []
    return next((link["node"] for link in links if link.get("type") == "compaction"), None)


WHERE: dict[str, Any] = {
    "group": "`group.id`, or the task's key",
    "rollout": "trace `id`",
    "step": "sampled node",
    "state": "messages before the node",
}

EPISODES = Format(
    name="verifiers-v1",
    title="verifiers v1 episodes",
    writer="verifiers 0.4.0, traces.jsonl",
    recognises=_is_episode,
    read=_read_file,
    **WHERE,
)
TRACES = Format(
    name="verifiers-traces",
    title="verifiers v1 traces",
    writer="verifiers 0.4.0, Trace.to_record",
    recognises=_is_trace,
    read=_read_traces,
    **WHERE,
)
