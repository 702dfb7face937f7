"""Training with SGLang by the command: in process, by URL, and with a server that goes away."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_sglang import FakeServer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModelForCausalLM

from algorithms.models import ModelSource
from algorithms.run import run
from vineenv.engines import sglang_pool

TINY = Path(__file__).parents[3] / "vineenv" / "assets" / "tiny"
SMALL = [
    "algo=vineppo", "env=math", "engine=sglang", "iterations=2", "algo.prompts=2", "algo.group_size=2",
    "algo.K=3", "eval.problems=4", "eval.final_problems=4", "samples=1", "threads=1",
    "env.min_steps=2", "env.max_steps=3", "env.max_new_tokens=40",
]  # fmt: skip
COMMAND = [sys.executable, "-m", "algorithms.run", *SMALL]
HANGS_S = 400


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def check_folder(folder: Path, iterations: int = 2) -> None:
    written = lines(folder)
    assert [line["iteration"] for line in written] == list(range(iterations + 1))
    assert all(line["engine_gap"] < 1e-3 for line in written[1:])
    assert AutoModelForCausalLM.from_pretrained(folder / "policy") is not None
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["iterations"] == iterations
    if iterations:
        assert summary["last"]["hit_rate/vines"] > 0.9
        events = EventAccumulator(str(folder / "tensorboard")).Reload()
        assert {"hit_rate/vines", "engine/hit_rate"} <= set(events.Tags()["scalars"])


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with FakeServer(ModelSource(path="asset:tiny").load()) as server:
        yield server


def test_a_run_whose_server_does_not_come_back_ends_with_a_folder_and_a_message(
    fake: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sglang_pool, "_LONGEST_PAUSE_S", 0.05)
    folder = tmp_path / "run"

    def fail_while_sampling(number: int) -> None:
        if (folder / "metrics.jsonl").is_file() and lines(folder):
            fake.lose = 10**6

    fake.on_generate = fail_while_sampling
    code = run([*SMALL, f"engine.urls=[{fake.url}]", "engine.patience=0.3", f"run_dir={folder}"])
    assert code == 3
    told = " ".join(capsys.readouterr().out.split())
    assert f"stopped after 0 iterations: {fake.url} has not answered for engine.patience=0.3 s" in told
    check_folder(folder, iterations=0)
    assert [p.name for p in (folder / "checkpoints").iterdir()] == ["iteration_0000"]


def test_a_refused_update_ends_the_run_with_the_reason(
    fake: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"

    def refuse_later(number: int) -> None:
        if (folder / "metrics.jsonl").is_file() and lines(folder):
            fake.refuse = "update_weights_from_tensor"

    fake.on_generate = refuse_later
    assert run([*SMALL, f"engine.urls=[{fake.url}]", f"run_dir={folder}"]) == 3
    assert "did not do update_weights_from_tensor: update_weights_from_tensor was sabotaged" in " ".join(
        capsys.readouterr().out.split()
    )


class RealServer:
    """`vineenv.engines.sglang_server` in a process group of its own."""

    def __init__(self, port: int, log: Path) -> None:
        command = [sys.executable, "-m", "vineenv.engines.sglang_server"]
        command += ["--model-path", str(TINY), "--port", str(port)]
        with log.open("a") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.sglang
def test_the_command_finishes_with_sglang_in_its_process_also_when_that_dies(tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen([*COMMAND, f"run_dir={folder}"], stdout=out, stderr=out)
    try:
        while process.poll() is None and not ((folder / "metrics.jsonl").is_file() and lines(folder)):
            time.sleep(0.02)
        scheduler = ["pkill", "-9", "-P", str(process.pid), "-f", "sglang::scheduler"]
        assert subprocess.run(scheduler, check=False).returncode == 0, log.read_text()
        code = process.wait(HANGS_S)
    finally:
        process.kill()
    told = log.read_text()
    assert code == 0, told
    assert "slow, portable path" in told and "starting it again" in told
    check_folder(folder)


@pytest.mark.sglang
def test_the_command_goes_on_when_its_server_is_killed_and_restarted(tmp_path: Path) -> None:
    """Then a second run uses the same server, which still has the weights of the first."""
    port, log, folder = free_port(), tmp_path / "server.log", tmp_path / "run"
    servers = [RealServer(port, log)]

    def kill_in_the_first_iteration() -> None:
        while not ((folder / "metrics.jsonl").is_file() and lines(folder)):
            time.sleep(0.02)
        servers[0].kill()
        servers.append(RealServer(port, log))

    threading.Thread(target=kill_in_the_first_iteration, daemon=True).start()
    urls, second = f"engine.urls=[http://127.0.0.1:{port}]", tmp_path / "second"
    try:
        done = subprocess.run(
            [*COMMAND, urls, f"run_dir={folder}"],
            capture_output=True,
            text=True,
            timeout=HANGS_S,
            check=False,
        )
        again = run([*SMALL, urls, f"run_dir={second}"])
    finally:
        for server in servers:
            if server.process.poll() is None:
                server.kill()
    assert done.returncode == 0, done.stderr + log.read_text()[-2000:]
    assert len(servers) == 2
    assert f"http://127.0.0.1:{port} is lost" in done.stderr
    check_folder(folder)
    assert again == 0
    check_folder(second)
