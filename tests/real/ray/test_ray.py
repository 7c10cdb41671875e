"""`--engine ray` on a real cluster of this machine: the bytes of a local run, whatever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from conftest import Ended, crbc, golden_rows, jsonl, program

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import kills
import synthetic

WORKERS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Worker processes that the runs of this module use."""
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs in order and shuffled, Parquet and JSONL."""
    folder = tmp_path_factory.mktemp("logs") / "logs"
    kills.write_logs(folder, files=8, groups=20)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def running() -> list[int]:
    """Worker processes of this process's cluster that have a task of ours now."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and (entry / "cmdline").read_bytes().startswith(b"ray::crbc"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


class Killer:
    """Kills one running worker, then another, until enough were killed."""

    def __init__(self, kills: int) -> None:
        self.killed: list[int] = []
        self._kills, self._over = kills, threading.Event()
        self._thread = threading.Thread(target=self._hunt)

    def _hunt(self) -> None:
        while len(self.killed) < self._kills and not self._over.is_set():
            for worker in [w for w in running() if w not in self.killed][:1]:
                os.kill(worker, signal.SIGKILL)
                self.killed.append(worker)
            time.sleep(0.05)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.parametrize(
    "options",
    [(), ("--to", "jsonl", "--columns", "all"), ("--method", "crbc,gigpo", "--to", "csv")],
    ids=["plain", "columns", "methods"],
)
@pytest.mark.usefixtures("cluster")
def test_a_task_per_file_writes_the_same_bytes(
    options: tuple[str, ...], logs: Path, tmp_path: Path
) -> None:
    ends = [
        crbc("annotate", logs, "-o", f"{tmp_path / name}/", *options, "--engine", name)
        for name in ("local", "ray")
    ]
    assert [ended.code for ended in ends] == [0, 0], ends[1].stderr
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    assert ends[1].stderr == ends[0].stderr.replace("/local/", "/ray/")


@pytest.mark.parametrize("spanning", [False, True], ids=["per file", "spanning"])
@pytest.mark.usefixtures("cluster")
def test_one_table_of_all_files_is_done_in_pieces(
    spanning: bool, logs: Path, tmp_path: Path
) -> None:
    """Also where groups span files: half of each group's rows stands in another file."""
    inputs, options = [logs], []
    if spanning:
        whole = tmp_path / "whole.jsonl"
        synthetic.write(whole, 60, rollouts=4, steps=12, seed=3)
        lines = whole.read_bytes().splitlines(keepends=True)
        inputs = [tmp_path / f"{i}.jsonl" for i in range(3)]
        for i, path in enumerate(inputs):
            path.write_bytes(b"".join(lines[i::3]))
        options = ["--spanning-groups"]
    for name in ("local", "ray"):
        ended = crbc(
            *("annotate", *inputs, "-o", tmp_path / f"{name}.parquet", *options),
            *("--chunk-rows", "500", "--engine", name),
        )
        assert ended.code == 0, ended.stderr
    assert (tmp_path / "ray.parquet").read_bytes() == (tmp_path / "local.parquet").read_bytes()


@pytest.mark.parametrize("one", [False, True], ids=["file tasks", "pieces"])
@pytest.mark.usefixtures("cluster")
def test_killed_workers_cost_a_retry(one: bool, tmp_path: Path) -> None:
    """Three workers are killed while they have a task."""
    logs = tmp_path / "logs"
    kills.write_logs(logs, files=4, groups=300)
    names = {name: tmp_path / (f"{name}.parquet" if one else name) for name in ("local", "ray")}
    arguments = ("annotate", logs, "--chunk-rows", "3000")
    slash = "" if one else "/"
    assert crbc(*arguments, "-o", f"{names['local']}{slash}").code == 0
    with Killer(3) as killer:
        ended = crbc(*arguments, "-o", f"{names['ray']}{slash}", "--engine", "ray")
    assert ended.code == 0, ended.stderr
    assert len(killer.killed) == 3
    if one:
        assert names["ray"].read_bytes() == names["local"].read_bytes()
    else:
        assert contents(names["ray"]) == contents(names["local"])  # and nothing half-written


@pytest.mark.usefixtures("cluster")
def test_a_task_that_always_dies_ends_in_one_line(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    kills.write_logs(logs, files=2, groups=300)
    with Killer(10**6):
        ended = crbc("annotate", logs, "-o", f"{tmp_path}/out/", "--engine", "ray")
    assert "the Ray cluster lost the work (WorkerCrashedError)" in ended.refused()
    out = tmp_path / "out"
    assert not out.exists() or not [*out.glob(".*")]


@pytest.mark.usefixtures("cluster")
def test_resume_and_keep_going(tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    for number in range(4):
        rows = [row | {"group_id": f"g{number}"} for row in golden_rows()]
        (logs / f"{number}.jsonl").write_bytes(jsonl(rows))
    good = (logs / "1.jsonl").read_bytes()
    (logs / "1.jsonl").write_bytes(b"{bad}\n" + good)
    arguments = ("annotate", logs, "-o", f"{out}/", "--engine", "ray")
    line = crbc(*arguments).refused()
    assert f"{logs}/1.jsonl:1: not a JSON object" in line
    ended = crbc(*arguments, "--resume", "--keep-going")
    assert ended.code == 1
    assert f"failed: {out}/1.credit.parquet: {logs}/1.jsonl:1: not a JSON object" in ended.stderr
    assert sorted(contents(out)) == [f"{n}.credit.parquet" for n in (0, 2, 3)]
    (logs / "1.jsonl").write_bytes(good)
    ended = crbc(*arguments, "--resume")
    assert f"-> {out}/1.credit.parquet; 3 there already" in ended.stderr
    assert crbc("annotate", logs, "-o", f"{tmp_path}/local/").code == 0
    assert contents(out) == contents(tmp_path / "local")


@pytest.mark.usefixtures("cluster")
def test_errors_of_workers_read_as_local_ones(tmp_path: Path) -> None:
    """What pieces count is added up before it is told."""
    rows = [row | {"group_id": f"g{n}"} for n in range(30) for row in golden_rows()]
    rows[101] |= {"step": rows[100]["step"], "rollout_id": rows[100]["rollout_id"]}
    rows[-1] |= {"step": rows[-2]["step"], "rollout_id": rows[-2]["rollout_id"]}
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(rows))
    arguments = ("annotate", log, "-o", tmp_path / "x.csv", "--chunk-rows", "20")
    here, there = (crbc(*arguments, "--engine", name).refused() for name in ("local", "ray"))
    assert there == here
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.usefixtures("cluster")
def test_paths_mean_what_they_mean_here(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "logs").symlink_to(logs)
    for name in ("local", "ray"):
        ended = crbc("annotate", "logs", "-o", f"{name}/", "--engine", name, cwd=tmp_path)
        assert ended.code == 0, ended.stderr
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


def processes(parent: int) -> list[int]:
    """Processes below one."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal():
                status = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(status[1]) == parent:
                    found += [int(entry.name), *processes(int(entry.name))]
        except (OSError, ValueError):
            continue
    return found


def test_a_cluster_of_its_own(logs: Path, tmp_path: Path) -> None:
    """As a program: the same bytes, and no process of the cluster stays."""
    assert program("annotate", logs, "-o", f"{tmp_path}/local/").code == 0
    ended: Ended = program("annotate", logs, "-o", f"{tmp_path}/ray/", "--engine", "ray")
    assert ended.code == 0, ended.stderr
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) == 2


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_ends_it_and_leaves_nothing(name: str, code: int, tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    kills.write_logs(logs, files=4, groups=1500)
    command = [sys.executable, "-m", "crbc_cli", "annotate", str(logs), "-o", f"{out}/"]
    how: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    process = subprocess.Popen([*command, "--engine", "ray"], start_new_session=True, **how)
    while process.poll() is None and not (out.is_dir() and list(out.glob(".*"))):
        time.sleep(0.05)
    below = processes(process.pid)
    process.send_signal(getattr(signal, name))
    _, said = process.communicate(timeout=120)
    assert process.returncode == code, said
    assert b"Traceback" not in said
    assert not list(out.glob(".*"))
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in below) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]


def test_no_cluster_there(tmp_path: Path) -> None:
    options = ("--engine", "ray", "--ray-address", "127.0.0.1:1")
    line = program(
        "annotate", "-", "-o", tmp_path / "x.csv", *options, stdin=jsonl(golden_rows())
    ).refused()
    assert "no Ray cluster at 127.0.0.1:1 (Connection refused)" in line
