"""Batches of a toy whose prompts say what befalls it, in processes and on clusters to be killed.

A prompt is words, then orders: "a cat; sleep 0.1; die once". The toy notes each call in calls.log.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAME = "batch_toy"
MODEL = f"{NAME}:built"
SOURCE = '''
import os
import signal
import time
import zlib
from pathlib import Path

import torch
from torchdiffeq import odeint

from geoshrink.batch.results import Results
from geoshrink.compare import Pictures

HERE = Path(__file__).parent


def note(name, words):
    """One line, whole, whoever else writes."""
    line = f"{time.time():.6f} {os.getpid()} {words}\\n"
    file = os.open(HERE / name, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(file, line.encode())
    os.close(file)


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def first(name):
    """True the first time, in whatever process."""
    try:
        os.close(os.open(HERE / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def die_writing(files):
    """Dies in the write of so many files from here on: a part is left."""
    left, fsync = [files], os.fsync

    def on_fsync(file):
        left[0] -= 1
        return die() if left[0] == 0 else fsync(file)

    os.fsync = on_fsync


def obey(order):
    word, *told = order.split()
    if word == "sleep" and not (HERE / "quick").exists():
        time.sleep(float(told[0]))
    elif word == "raise":
        raise RuntimeError("no such cat")
    elif word == "memory":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    elif word == "mend" and first("mended"):
        raise RuntimeError("not today")
    elif word == "die" and told == ["always"]:
        die()
    elif word == "die" and told == ["once"] and first(f"died.{order}"):
        die()
    elif word == "die" and told[0] == "writing" and first(f"died.{order}"):
        die_writing(int(told[1]))


class Toy:
    def sample(self, mix, noise, steps):
        def velocity(t, x):
            return torch.tanh(mix @ x) * (1 + t) - 0.5 * x

        return odeint(velocity, noise, torch.linspace(0, 1, steps + 1), method="euler")[-1]


def built():
    note("built.log", "built")
    if (HERE / "slow_store").exists():
        slow_down(Results)
    toy = Toy()

    def call(
        prompt=None, steps=20, seed=0, gain=1.0, size=8, count=1, less=0, height=None, width=None
    ):
        note("calls.log", prompt)
        words, *orders = (prompt or "").split("; ")
        for order in orders:
            obey(order)
        drawn = torch.Generator().manual_seed(zlib.crc32(words.encode()))
        mix = gain * torch.randn(size, size, generator=drawn)
        noise = torch.randn(3, size, size, generator=torch.Generator().manual_seed(seed))
        value = toy.sample(mix, noise, steps - less)
        if "nan" in orders:
            value = value * float("nan")
        values = value.sigmoid()[None, None].repeat(count, 1, 1, 1, 1)
        return Pictures(values, moving="film" in orders)

    return toy, call


def slow_down(kind):
    keep = kind.keep

    def slowly(self, row, *rest):
        time.sleep(0.4)
        keep(self, row, *rest)
        note("kept.log", row["prompt"])

    kind.keep = slowly


def broken():
    note("built.log", "broken")
    raise RuntimeError("the weights are gone")


def dying():
    note("built.log", "dying")
    die()
'''


def put_toy(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NAME}.py").write_text(SOURCE, "utf-8")
    return folder


def put_prompts(folder: Path, prompts: list[str], name: str = "prompts.txt") -> Path:
    path = folder / name
    path.write_text("\n".join(prompts) + "\n", "utf-8")
    return path


def calls(folder: Path, name: str = "calls.log") -> list[tuple[float, int, str]]:
    """(when, process, prompt) of each call."""
    file = folder / name
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    split = [line.split(" ", 2) for line in lines]
    return [(float(when), int(pid), words) for when, pid, words in split]


def counted(folder: Path) -> Counter[str]:
    return Counter(prompt for _, _, prompt in calls(folder))


def files(out: Path) -> dict[str, bytes]:
    """All but the rows, which hold seconds."""
    return {p.name: p.read_bytes() for p in out.iterdir() if p.suffix != ".parquet"}


def rows(out: Path, name: str = "results.parquet") -> list[dict[str, Any]]:
    from pyarrow import parquet

    return parquet.read_table(out / name).to_pylist()


def stamps(out: Path) -> dict[str, int]:
    """When each row was written."""
    return {p.name: p.stat().st_mtime_ns for p in out.glob("*.row.parquet")}


def check_whole(out: Path) -> None:
    """Each row has its sample, every sample can be opened."""
    from PIL import Image

    for row in out.glob("*.row.parquet"):
        kept = rows(out, row.name)[0]
        assert kept["error"] is None and (out / kept["file"]).is_file()
    for sample in out.glob("*.png"):
        with Image.open(sample) as image:
            image.load()


def parts(out: Path) -> list[str]:
    """Files that were not finished."""
    return [path.name for path in out.rglob(".*")]


def until(what: Callable[[], Any], seconds: float = 60, every: float = 0.02) -> Any:
    """What it gives once it is something."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(every)
    return found


# -- processes


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["geoshrink.commands.batch", "torchdiffeq", "PIL.Image", "tqdm.auto"])


class Command:
    """geoshrink with these words, in a process of its own that costs no imports."""

    def __init__(self, folder: Path, *words: object, env: Mapping[str, str] | None = None):
        self.said = folder / f"said.{secrets.token_hex(4)}"
        told = folder, self.said, [str(word) for word in words], dict(env or {})
        self.process = FORKS.Process(target=command, args=told)
        self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def end(self, seconds: float = 120) -> tuple[int, str]:
        """(exit status, all that it printed)."""
        self.process.join(seconds)
        status = self.process.exitcode
        if status is None:
            self.process.kill()
            self.process.join()
        said = self.said.read_text("utf-8", "replace")
        assert status is not None, f"it did not end: {said}"
        return status, said


def command(folder: Path, said: Path, words: list[str], env: dict[str, str]) -> None:
    """In the new process."""
    os.environ.update(env)
    os.chdir(folder)
    with open(said, "wb") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    import torch

    from geoshrink.cli import main

    torch.set_num_threads(1)
    status = main(words)
    sys.stdout.flush()
    sys.exit(status)


def batch(folder: Path, *more: object, env: Mapping[str, str] | None = None) -> Command:
    """geoshrink batch of the folder's toy and prompts, into its folder out."""
    amount = () if {"--plain", "--budget"} & {*more} else ("--budget", 5)
    words = ("batch", MODEL, "prompts.txt", "--out", "out", "--steps", 20, *amount, *more)
    return Command(folder, *words, env=env)


# -- clusters


QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "OMP_NUM_THREADS": "1"}


class Nodes:
    """A cluster of several nodes on this machine, held by a process of its own."""

    def __init__(self, process: subprocess.Popen[str], env: dict[str, str]):
        self.process, self.env = process, env
        self.address = self.tell()

    def tell(self, *words: str) -> Any:
        """What it answers to an order."""
        assert self.process.stdin and self.process.stdout
        if words:
            self.process.stdin.write(" ".join(words) + "\n")
            self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)["said"]
        raise AssertionError("the cluster has ended: see cluster.log")

    def workers(self) -> dict[int, str]:
        """The processes of its actors: number → what each does now, such as ray::Actor.do."""
        found, token = {}, self.env["RAY_AUTH_TOKEN"].encode()
        for folder in Path("/proc").iterdir():
            try:
                title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                if title.startswith("ray::") and token in (folder / "environ").read_bytes():
                    found[int(folder.name)] = title
            except (OSError, ValueError):
                continue
        return found


@contextmanager
def nodes(count: int, folder: Path) -> Iterator[Nodes]:
    """A head without CPUs and so many nodes with one each; started in another folder."""
    env = {**QUIET, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    env["BATCH_TEMP"] = f"/tmp/g{secrets.token_hex(3)}"  # a socket's path must be short
    with open(folder / "cluster.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, __file__, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=folder,
            env={**os.environ, **env},
            start_new_session=True,
        )
    try:
        yield Nodes(process, env)
    finally:
        assert process.stdin and process.stdout
        process.stdin.close()  # it ends the cluster, then itself
        process.wait(60)
        process.stdout.close()
        subprocess.run(["rm", "-rf", env["BATCH_TEMP"]], check=False)


def hold(count: int) -> None:
    """The process that holds a cluster and takes orders: add, remove, free, actors."""
    import ray
    from ray._common.utils import get_ray_address_file
    from ray.cluster_utils import Cluster

    known = Path(get_ray_address_file(None))  # Ray writes it, wherever its own folder is
    known.parent.mkdir(parents=True, exist_ok=True)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Ray prints

    place: dict[str, Any] = {"include_dashboard": False, "temp_dir": os.environ["BATCH_TEMP"]}
    memory: dict[str, Any] = {"object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **place, **memory})
    there = [cluster.add_node(num_cpus=1, **memory) for _ in range(count)]
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)

    def free() -> float:
        """Bytes of the object stores that are in use."""
        total = ray.cluster_resources()["object_store_memory"]
        return total - ray.available_resources()["object_store_memory"]

    def add() -> None:
        there.append(cluster.add_node(num_cpus=1, **memory))

    orders: dict[str, Callable[[], Any]] = {
        "add": add,
        "remove": lambda: cluster.remove_node(there.pop(), allow_graceful=False),
        "used": free,
        "cpus": lambda: ray.available_resources().get("CPU", 0),
    }
    print(json.dumps({"said": cluster.address}), file=answers)
    for line in sys.stdin:
        said = orders[line.strip()]()
        plain = said if isinstance(said, (int, float)) else None
        print(json.dumps({"said": plain}), file=answers)
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    hold(int(sys.argv[1]))
