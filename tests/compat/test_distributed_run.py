"""`python -m torch.distributed.run`: processes with their ranks, failures, restarts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import flambeau as torch

SCRIPT = """
import json, os, sys
import torch
names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR TORCHELASTIC_RESTART_COUNT".split()
assert torch.distributed.is_torchelastic_launched() and not torch.distributed.is_available()
found = [os.environ[name] for name in names] + sys.argv[1:]
with open(sys.argv[1] + os.environ["RANK"], "w") as file:
    json.dump(found, file)
if "fail" in sys.argv and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(3)
"""


def launch(tmp_path, *options, script=SCRIPT, arguments=()):
    path = tmp_path / "script.py"
    path.write_text(script)
    head = [sys.executable, "-m", "flambeau", "-m", "torch.distributed.run", *options]
    command = [*head, str(path), str(tmp_path / "out"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_processes_know_their_ranks(tmp_path):
    done = launch(tmp_path, "--standalone", "--nproc_per_node=2", arguments=("--flag",))
    assert done.returncode == 0, done.stderr
    for rank in "01":
        found = json.loads((tmp_path / f"out{rank}").read_text())
        assert found == [rank, rank, "2", "2", "127.0.0.1", "0", str(tmp_path / "out"), "--flag"]


def test_a_failure_is_told_and_started_again_where_that_is_allowed(tmp_path):
    failed = launch(tmp_path, arguments=("fail",))
    assert failed.returncode == 1
    assert "the process of rank 0 ended with status 3\nhint: " in failed.stderr
    again = launch(tmp_path, "--max-restarts", "1", arguments=("fail",))
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "out0").read_text())[5] == "1"


@pytest.mark.parametrize("options", [("--nnodes=2",), ("--nproc-per-node=gpu",)])
def test_what_is_not_there_is_refused(tmp_path, options):
    refused = launch(tmp_path, *options)
    assert refused.returncode == 1 and "\nhint: " in refused.stderr
    assert not (tmp_path / "out0").exists()


def test_this_process_was_not_launched():
    assert not torch.distributed.is_torchelastic_launched()
    assert "is_torchelastic_launched" in torch.distributed.__all__
