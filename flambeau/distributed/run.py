"""`python -m torch.distributed.run`: starts the processes of a program on this machine.

Each process runs the same script and learns from its environment which one it is (`RANK`,
`LOCAL_RANK`, `WORLD_SIZE` ...). Processes cannot exchange tensors in this build: a script that
checks `torch.distributed.is_available()` first, or that runs as one process, works.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence

__all__ = ["get_args_parser", "main", "parse_args", "run"]

_POLL = 0.05  # seconds between looks at the processes
_GRACE = 30.0  # seconds between SIGTERM and SIGKILL


def get_args_parser() -> argparse.ArgumentParser:
    """The options of `torchrun`."""
    parser = argparse.ArgumentParser("torchrun", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--nnodes", default="1", help="machines; one is all this build knows")
    add("--nproc-per-node", "--nproc_per_node", default="1", help="processes: a number, or auto")
    add("--node-rank", "--node_rank", type=int, default=0)
    add("--max-restarts", "--max_restarts", type=int, default=0)
    add("--monitor-interval", "--monitor_interval", type=float, default=_POLL)
    add("--master-addr", "--master_addr", default="127.0.0.1")
    add("--master-port", "--master_port", type=int, default=0, help="0: a free one")
    add("--rdzv-id", "--rdzv_id", default="none", help="name of the job")
    add("--role", default="default")
    for ignored in ("backend", "endpoint", "conf"):
        add(f"--rdzv-{ignored}", f"--rdzv_{ignored}", default="", help=argparse.SUPPRESS)
    for ignored in ("start-method", "log-dir", "redirects", "tee", "local-addr"):
        spellings = {f"--{ignored}", f"--{ignored.replace('-', '_')}"}
        add(*sorted(spellings), default="", help=argparse.SUPPRESS)
    add("--standalone", action="store_true", help="one machine, which is always so")
    add("-m", "--module", action="store_true", help="the script is the name of a module")
    add("--no-python", "--no_python", action="store_true", help="the script is a command")
    add("training_script", help="the script, with its arguments behind it")
    add("training_script_args", nargs=argparse.REMAINDER)
    return parser


def parse_args(args: Sequence[str] | None) -> argparse.Namespace:
    """Options from a command line; None: this process's."""
    return get_args_parser().parse_args(args)


def _count(args: argparse.Namespace) -> int:
    """The number of processes.

    Raises:
        ValueError: not a number, or a kind of device that this machine does not have.
        NotImplementedError: several machines.
    """
    if args.nnodes.split(":")[-1] != "1" or args.node_rank != 0:
        raise NotImplementedError(
            f"[torch.distributed.run] {args.nnodes} machines: this build starts processes on one\n"
            "hint: --nnodes=1"
        )
    text = args.nproc_per_node
    if text in ("auto", "cpu"):
        return os.cpu_count() or 1
    if not text.isdigit() or int(text) < 1:
        raise ValueError(
            f"[torch.distributed.run] Unsupported nproc_per_node value: {text}\n"
            "hint: a number, cpu or auto"
        )
    return int(text)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _command(args: argparse.Namespace) -> list[str]:
    script = [args.training_script, *args.training_script_args]
    if args.no_python:
        return script
    python = [sys.executable, "-u", "-m", "flambeau"]
    return [*python, "-m", *script] if args.module else [*python, *script]


def _environment(
    args: argparse.Namespace, rank: int, count: int, restarts: int, port: int, job: str
) -> dict[str, str]:
    """The environment of a process; the names are torchrun's."""
    place = {
        "LOCAL_RANK": rank, "RANK": rank, "ROLE_RANK": rank, "GROUP_RANK": 0,
        "LOCAL_WORLD_SIZE": count, "WORLD_SIZE": count, "ROLE_WORLD_SIZE": count,
        "GROUP_WORLD_SIZE": 1, "ROLE_NAME": args.role,
        "MASTER_ADDR": args.master_addr, "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": restarts, "TORCHELASTIC_MAX_RESTARTS": args.max_restarts,
        "TORCHELASTIC_RUN_ID": job,
    }  # fmt: skip
    threads = {"OMP_NUM_THREADS": "1"} if count > 1 else {}
    return {**threads, **os.environ, **{name: str(value) for name, value in place.items()}}


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends the processes that still run, by force after some time."""
    running = [each for each in processes if each.poll() is None]
    for each in running:
        each.terminate()
    end = time.monotonic() + _GRACE
    for each in running:
        try:
            each.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            each.kill()
            each.wait()


def _attempt(args: argparse.Namespace, count: int, restarts: int, job: str) -> tuple[int, int]:
    """Runs all processes; (rank, exit status) of the first that failed, or (-1, 0)."""
    port = args.master_port or _free_port()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(count):
            environment = _environment(args, rank, count, restarts, port, job)
            processes.append(subprocess.Popen(_command(args), env=environment))
        while True:
            states = [each.poll() for each in processes]
            failed = [(rank, state) for rank, state in enumerate(states) if state]
            if failed:
                return failed[0]
            if all(state == 0 for state in states):
                return -1, 0
            time.sleep(args.monitor_interval)
    finally:
        _stop(processes)


def run(args: argparse.Namespace) -> None:
    """Starts the processes and waits for them, again after a failure as often as allowed.

    Raises:
        RuntimeError: a process failed in the last attempt.
    """
    count = _count(args)
    job = str(uuid.uuid4()) if args.standalone else args.rdzv_id
    for restarts in range(args.max_restarts + 1):
        rank, status = _attempt(args, count, restarts, job)
        if rank < 0:
            return
    raise RuntimeError(
        f"[torch.distributed.run] {args.training_script}: the process of rank {rank} ended with "
        f"status {status}\nhint: its own messages stand above"
    )


def main(args: Sequence[str] | None = None) -> None:
    """The command.

    Raises:
        SystemExit: a process failed, or the options are wrong.
    """
    try:
        run(parse_args(args))
    except (RuntimeError, ValueError, NotImplementedError) as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
