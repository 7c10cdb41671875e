"""`crbc annotate --emit`: the credit table under each trainer's own keys, in float32."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import GOLDEN, Ended, crbc, golden_rows, jsonl

from crbc_cli.trainers.targets import TARGETS

IDENTITY: dict[str, dict[str, Any]] = {
    "verl-agent": {"uid": "u-{g}", "traj_uid": "t-{r}"},
    "verl": {"uid": "{g}_{r}_{s}"},
    "slime": {"index": "{n}"},
    "rllm": {"episode_id": "{g}:{r}", "trajectory_index": 0, "step_index": "{s}"},
    "trl": {"file": "completions_00010.parquet", "row": "{n}"},
    "skyrl": {"instance_id": "i-{g}", "repetition_id": "{r}"},
    "tinker": {"group_idx": 4, "traj_idx": "{r}", "step_idx": "{s}"},
    "prime-rl": {"trace_id": "tr-{r}", "node_index": "{n}"},
}
"""What each trainer's dump says about a row: {g}roup, {r}ollout, {s}tep, row {n}umber."""


def identified(target: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the trainer's identity columns, whole numbers where the text is one."""
    found = []
    for n, row in enumerate(rows):
        texts = {
            name: str(value).format(g=row["group_id"], r=row["rollout_id"], s=row["step"], n=n)
            for name, value in IDENTITY[target].items()
        }
        found.append(row | {k: int(v) if v.isdecimal() else v for k, v in texts.items()})
    return found


def emit(target: str, rows: list[dict[str, Any]], *options: object) -> Ended:
    return crbc(
        *("annotate", "-", "--emit", target, "-o", "-", "--to", "jsonl", *options),
        stdin=jsonl(rows),
    )


def numbers(rows: list[dict[str, Any]], name: str, *options: object) -> list[float]:
    """A column of the credit table, rounded to float32."""
    ended = crbc("annotate", "-", "-o", "-", "--to", "arrow", *options, stdin=jsonl(rows))
    values: list[float] = np.float32(ended.table[name].to_pylist()).tolist()
    return values


def emitted_numbers(rows: list[dict[str, Any]]) -> list[float]:
    return np.float32([row["advantage"] for row in rows]).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_has_its_keys_and_the_tables_numbers(target: str) -> None:
    rows = identified(target, golden_rows())
    ended = emit(target, rows)
    assert ended.code == 0, ended.stderr
    keys = TARGETS[target].key_names
    assert list(ended.rows[0])[: len(keys)] == list(keys)
    assert emitted_numbers(ended.rows) == numbers(golden_rows(), "advantage")
    logged = {"index": "sample_index", "uid": "key"} if target in ("slime", "verl") else {}
    for name in IDENTITY[target]:
        key = logged.get(name, name)
        assert [row[key] for row in ended.rows] == [row[name] for row in rows], name
    assert "emitted_keys" not in ended.stderr
    assert f"--emit {target}: {keys[0]} from " in ended.stderr


@pytest.mark.parametrize("target", TARGETS)
def test_keys_do_not_depend_on_the_order_of_rows(target: str) -> None:
    rows = identified(target, golden_rows())
    order = np.random.default_rng(1).permutation(len(rows))
    found = [emit(target, some).rows for some in (rows, [rows[i] for i in order])]
    keyed = [sorted(json.dumps(row, sort_keys=True) for row in some) for some in found]
    assert keyed[0] == keyed[1]


def test_a_canonical_log_is_enough_where_the_trainers_ids_are_its_own() -> None:
    first = {t: emit(t, golden_rows()).rows[3] for t in ("verl-agent", "verl", "skyrl", "tinker")}
    assert {k: first["verl-agent"][k] for k in ("uid", "traj_uid", "position")} == {
        "uid": "golden",
        "traj_uid": "t1",
        "position": 1,
    }
    assert first["verl"]["key"] == "golden_t1_1"
    assert (first["skyrl"]["instance_id"], first["skyrl"]["repetition_id"]) == ("golden", "t1")
    assert [first["tinker"][k] for k in TARGETS["tinker"].key_names] == ["golden", "t1", 1]
    ended = crbc("annotate", GOLDEN, "--emit", "trl", "-o", "-", "--to", "jsonl")
    assert (ended.rows[3]["file"], ended.rows[3]["row"]) == (str(GOLDEN), 3)


def test_position_counts_rows_where_steps_have_gaps() -> None:
    rows = [row | {"step": 10 + 5 * row["step"]} for row in golden_rows()]
    found = emit("verl-agent", rows).rows
    assert [row["position"] for row in found] == [row["step"] for row in golden_rows()]


def test_position_counts_rows_of_one_key() -> None:
    """Rollouts of several epochs have equal ids and are told apart by --key; in any pieces."""
    rows = [
        row | {"epoch": epoch / 2, "step": row["step"] + 10 * epoch}
        for epoch in range(3)
        for row in golden_rows()
    ]
    for pieces in ((), ("--chunk-rows", "1", "--threads", "2")):
        found = emit("verl-agent", rows, "--key", "epoch", *pieces).rows
        assert [row["position"] for row in found] == 3 * [row["step"] for row in golden_rows()]


@pytest.mark.parametrize(
    ("target", "column", "key"),
    [
        ("slime", "sample_index", "sample_index"),
        ("rllm", "episode_id", "episode_id"),
        ("prime-rl", "node_index", "node_index"),
    ],
)
def test_a_missing_identity_is_named(target: str, column: str, key: str) -> None:
    line = emit(target, golden_rows()).refused()
    assert f"has no column {column} for {target}'s {key}" in line
    assert f"--map {key}=COLUMN" in line


def test_map_names_an_identity_column_also_inside_json() -> None:
    rows = [row | {"metadata": {"at": n}} for n, row in enumerate(golden_rows())]
    ended = emit("slime", rows, "--map", "sample_index=metadata.at")
    assert [row["sample_index"] for row in ended.rows] == list(range(9))
    both = emit("slime", rows, "--map", "sample_index=metadata.at,observation=observation")
    assert both.rows == ended.rows
    line = emit("slime", rows, "--map", "sample_index=info.at").refused()
    assert "has no column info.at" in line


def test_identities_are_complete_and_unique() -> None:
    rows = identified("slime", golden_rows())
    del rows[4]["index"]
    assert "row 4: sample_index is null" in emit("slime", rows).refused()
    rows = [row | {"index": 3} for row in golden_rows()]
    assert "sample_index 3, step 0 occurs more than once" in emit("slime", rows).refused()


def test_copies_are_left_out() -> None:
    rows = golden_rows()
    padded = [*rows, rows[3], rows[0]]
    assert emit("verl-agent", padded).rows == emit("verl-agent", rows).rows


def test_several_methods_need_a_choice() -> None:
    methods = ("--method", "base=crbc:depth=0,crbc,grpo")
    line = emit("verl", golden_rows(), *methods).refused()
    assert "choose it with --emit-column, one of base_advantage, crbc_advantage, grpo_adv" in line
    found = emit("verl", golden_rows(), *methods, "--emit-column", "base_step_credit").rows
    assert emitted_numbers(found) == numbers(golden_rows(), "step_credit", "--depth", 0)
    line = emit("verl", golden_rows(), *methods, "--emit-column", "credit").refused()
    assert "--emit-column 'credit' is not computed; use one of base_state_value" in line
    assert "needs --emit" in crbc("annotate", GOLDEN, "--emit-column", "credit").refused()


def test_credit_round_trip_case() -> None:
    """Worked case: +1, +0.7071 | +1, -1.4142 | -1, +1, +0.7071 | -1, -1."""
    case = Path(__file__).parent / "cases" / "credit-round-trip.jsonl"
    ended = crbc(
        *("annotate", case, "--emit", "verl-agent", "--emit-column", "step_credit"),
        *("-o", "-", "--to", "jsonl"),
    )
    root = np.sqrt(0.5)
    expected = [1, root, 1, -2 * root, -1, 1, root, -1, -1]
    assert np.allclose([row["advantage"] for row in ended.rows], expected, atol=1e-6)
    distinct: dict[str, set[float]] = {}
    for row, value in zip(ended.rows, emitted_numbers(ended.rows), strict=True):
        distinct.setdefault(row["traj_uid"], set()).add(value)
    assert [len(values) for values in distinct.values()] == [2, 2, 3, 1]


def test_token_spans_and_reasons_are_carried_along() -> None:
    rows = [
        row | {"response_start": 4 * n, "response_len": n} for n, row in enumerate(golden_rows())
    ]
    rows[7] |= {"success": None}
    rows[8] |= {"success": None}
    found = emit("verl", rows).rows
    assert [(r["response_start"], r["response_len"]) for r in found][2] == (8, 2)
    assert found[8]["advantage"] is None
    assert found[8]["reason"] == "unscored"


def test_numbers_beyond_float32_are_refused() -> None:
    line = emit("verl", golden_rows(), "--w-s", "1e39").refused()
    assert "which float32 cannot hold" in line


@pytest.mark.parametrize(
    "option", [("--columns", "all"), ("--prefix", "x_"), ("--anchor-id",)], ids=lambda o: o[0]
)
def test_options_that_shape_the_credit_table_are_refused(option: tuple[str, ...]) -> None:
    assert (
        f"{option[0]} does not go with --emit verl"
        in emit("verl", golden_rows(), *option).refused()
    )


def test_unknown_targets_are_refused() -> None:
    assert "'grpo' is not known; use one of verl-agent, verl" in emit("grpo", []).refused()


def test_outputs_beside_the_input_and_their_metadata(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_bytes(jsonl(golden_rows()))
    assert crbc("annotate", log, "--emit", "tinker").code == 0
    path = tmp_path / "run.credit.tinker.parquet"
    table = pl.read_parquet(path)
    assert table.schema["advantage"] == pl.Float32
    metadata = json.loads(pl.read_parquet_metadata(path)["crbc"])
    assert metadata["emit"] == {"target": "tinker", "column": "advantage", "keys": {}}
    again = crbc("annotate", tmp_path, "--emit", "tinker", "-o", tmp_path / "again.parquet")
    assert again.code == 0  # the emitted table is no log
    assert pl.read_parquet(tmp_path / "again.parquet").equals(table)


def test_several_inputs_share_one_table_if_their_keys_differ(tmp_path: Path) -> None:
    for name in ("1.jsonl", "2.jsonl"):
        (tmp_path / name).write_bytes(jsonl(golden_rows()))
    ended = crbc("annotate", tmp_path, "--emit", "trl", "-o", "-", "--to", "jsonl")
    assert [row["row"] for row in ended.rows] == [*range(9), *range(9)]
    line = crbc("annotate", tmp_path, "--emit", "tinker", "-o", "-", "--to", "jsonl").refused()
    assert "occurs more than once" in line


# --- plain vectors -------------------------------------------------------------------------------


def safetensors(data: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """A reader of the format: vectors and metadata."""
    [length] = struct.unpack("<Q", data[:8])
    assert length % 8 == 0
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    metadata = header.pop("__metadata__")
    vectors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = entry["data_offsets"]
        assert first == end  # no holes
        end = last
        dtype = {"F32": "<f4", "I64": "<i8"}[entry["dtype"]]
        vectors[name] = np.frombuffer(body[first:last], dtype)
        assert entry["shape"] == [len(vectors[name])]
    assert end == len(body)
    return vectors, metadata


def test_safetensors_holds_the_rows_that_have_credit(tmp_path: Path) -> None:
    rows = golden_rows()
    rows[7] |= {"success": None}
    rows[8] |= {"success": None}
    log = tmp_path / "run.jsonl"
    log.write_bytes(jsonl(rows))
    assert crbc("annotate", log, "--emit", "safetensors").code == 0
    vectors, metadata = safetensors((tmp_path / "run.credit.safetensors").read_bytes())
    assert vectors["source_row"].tolist() == list(range(7))
    assert vectors["advantage"].dtype == np.float32
    assert vectors["advantage"].tolist() == numbers(rows, "advantage")[:7]
    assert json.loads(metadata["crbc"])["emit"]["target"] == "safetensors"


def test_safetensors_holds_one_input(tmp_path: Path) -> None:
    for name in ("1.jsonl", "2.jsonl"):
        (tmp_path / name).write_bytes(jsonl(golden_rows()))
    one = crbc("annotate", tmp_path, "--emit", "safetensors", "-o", tmp_path / "c.safetensors")
    assert "holds the rows of one input" in one.refused()
    assert not (tmp_path / "c.safetensors").exists()
    assert crbc("annotate", tmp_path, "--emit", "safetensors", "-o", f"{tmp_path}/out/").code == 0
    assert len(list((tmp_path / "out").iterdir())) == 2
    line = crbc("annotate", GOLDEN, "--emit", "safetensors", "--to", "csv").refused()
    assert "--to does not go with --emit safetensors" in line


def test_pt_without_torch_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    line = crbc("annotate", GOLDEN, "--emit", "pt").refused()
    assert line.endswith("--emit pt needs torch; run python -m pip install 'crbc-cli[torch]'")
