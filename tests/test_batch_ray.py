"""geoshrink batch on a cluster of several nodes: what is killed in the middle is made up for.

The cluster and the drivers are processes of their own. A head without CPUs, two nodes with one.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batch import (
    MODEL,
    NAME,
    Command,
    Nodes,
    batch,
    calls,
    check_whole,
    counted,
    files,
    nodes,
    parts,
    put_prompts,
    put_toy,
    rows,
    stamps,
    until,
)

pytest.importorskip("ray")
pytest.importorskip("pyarrow")
pytest.importorskip("torchdiffeq")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("alone"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are killed by their number"),
]
WORKERS = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    with nodes(WORKERS, tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(autouse=True)
def nobody_works(cluster: Nodes):
    """The actors of the test before are gone."""
    until(lambda: cluster.tell("cpus") == WORKERS, 30, 0.2)


def start(cluster: Nodes, folder: Path, *more: object) -> Command:
    return batch(folder, "--ray", cluster.address, *more, env=cluster.env)


def alone(folder: Path, prompts: list[str]) -> Path:
    """What one process makes of the prompts, without their naps."""
    put_prompts(put_toy(folder), prompts)
    (folder / "quick").touch()
    status, said = batch(folder).end()
    assert status == 0, said
    return folder / "out"


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def latest(folder: Path) -> int:
    return calls(folder)[-1][1]


def test_200_prompts_survive_the_loss_of_workers_nodes_and_drivers(cluster: Nodes, tmp_path: Path):
    prompts = [f"cat {i}; sleep 0.15" for i in range(200)]
    here = put_toy(tmp_path / "here")
    put_prompts(here, prompts)
    out = here / "out"
    driver = start(cluster, here)

    until(lambda: len(stamps(out)) >= 25 if out.is_dir() else False)
    before = stamps(out)
    kill(latest(here))

    until(lambda: len(stamps(out)) >= 60)
    before = {**stamps(out), **before}
    cluster.tell("remove")
    cluster.tell("add")

    until(lambda: len(stamps(out)) >= 100)
    until(lambda: len({pid for _, pid, _ in calls(here)[-6:]}) == 2)  # the new node works, too
    before = {**stamps(out), **before}
    used = cluster.tell("used")
    kill(driver.pid)
    assert driver.end()[0] == -signal.SIGKILL
    check_whole(out)
    made = {row["prompt"] for name in stamps(out) for row in rows(out, name)}
    seen = len(calls(here))

    until(lambda: cluster.tell("cpus") == WORKERS, 30, 0.2)
    second = start(cluster, here)
    until(lambda: len(calls(here)) >= seen + 20)
    later = cluster.tell("used")
    status, said = second.end()
    assert status == 0, said
    assert f"{len(made)} kept from before" in said, said

    assert [row["prompt"] for row in rows(out)] == prompts
    assert [row["error"] for row in rows(out)] == [None] * 200
    assert len(stamps(out)) == len([*out.glob("*.png")]) == 200
    assert len([*out.iterdir()]) == 401 + len(parts(out))
    assert len(parts(out)) <= 1 + 1 + WORKERS  # of what was killed: swept when they are old
    assert before.items() <= stamps(out).items()  # what had a row was not made again
    again = counted(here)
    assert {*again} == {*prompts} and sum(again.values()) <= 200 + 1 + 1 + WORKERS
    assert not {prompt for _, _, prompt in calls(here)[seen:]} & made
    assert files(out) == files(alone(tmp_path / "alone", prompts))
    assert max(used, later) < 100_000 and later <= used + 10_000  # bytes of Ray's object stores


def test_two_processes_make_what_one_makes_and_survive_deaths(tmp_path: Path):
    prompts = [f"cat {i}; sleep 0.2" for i in range(30)]
    here = put_toy(tmp_path / "here")
    put_prompts(here, prompts)
    driver = batch(here, "--workers", 2)
    until(lambda: len(stamps(here / "out")) >= 5 if (here / "out").is_dir() else False)
    kill(latest(here))
    status, said = driver.end()
    assert status == 0 and "30 made, 0 kept from before" in said, said
    assert said.count("a worker was lost") == 1
    assert len({pid for _, pid, _ in calls(here)}) >= 2
    assert files(here / "out") == files(alone(tmp_path / "alone", prompts))


def test_interrupted_processes_end_what_they_have_begun(tmp_path: Path):
    put_prompts(put_toy(tmp_path), [f"cat {i}; sleep 0.3" for i in range(40)])
    driver = batch(tmp_path, "--workers", 2)
    until(lambda: len(stamps(tmp_path / "out")) >= 3 if (tmp_path / "out").is_dir() else False)
    for process in {driver.pid, *(pid for _, pid, _ in calls(tmp_path))}:  # as a terminal does
        os.kill(process, signal.SIGINT)
    status, said = driver.end()
    made = len(stamps(tmp_path / "out"))
    assert status and 3 <= made < 40, said
    check_whole(tmp_path / "out")
    assert len(calls(tmp_path)) == made  # what was begun was ended, and nothing after it begun


def test_a_prompt_that_kills_its_worker_is_given_up(cluster: Nodes, tmp_path: Path):
    prompts = [*(f"cat {i}" for i in range(5)), "dog; die always", "fish; die once"]
    put_prompts(put_toy(tmp_path), prompts)
    status, said = start(cluster, tmp_path).end()
    assert status == 1 and "6 made, 0 kept from before, 1 FAILED" in said, said
    assert "its worker died 3 times" in said and said.count("a worker was lost") == 4
    told = {row["prompt"]: row for row in rows(tmp_path / "out")}
    assert [*told] == prompts and not parts(tmp_path / "out")
    dog = told.pop("dog; die always")
    assert "its worker died 3 times" in dog["error"] and dog["file"] is None and dog["seed"] == 5
    assert all(row["error"] is None for row in told.values())
    assert counted(tmp_path)["dog; die always"] == 3 and counted(tmp_path)["fish; die once"] == 2
    assert all(counted(tmp_path)[f"cat {i}"] == 1 for i in range(5))


@pytest.mark.parametrize("builder, reason", [("broken", "the weights are gone"), ("dying", "died")])
def test_a_model_that_cannot_be_built_ends_it(
    cluster: Nodes, tmp_path: Path, builder: str, reason: str
):
    put_prompts(put_toy(tmp_path), ["a cat", "a dog", "a fish"])
    words = ("batch", f"{NAME}:{builder}", "prompts.txt", "--out", "out", "--budget", 5)
    status, said = Command(tmp_path, *words, "--ray", cluster.address, env=cluster.env).end(90)
    assert status == 2 and reason in said.splitlines()[-1], said
    assert "geoshrink batch: " in said and "Traceback" not in said
    assert not calls(tmp_path) and len(calls(tmp_path, "built.log")) <= 3 + WORKERS


def test_sigterm_lets_every_worker_finish(cluster: Nodes, tmp_path: Path):
    prompts = [f"cat {i}; sleep 0.3" for i in range(40)]
    put_prompts(put_toy(tmp_path), prompts)
    driver = start(cluster, tmp_path)
    until(lambda: len(calls(tmp_path)) >= 6)
    os.kill(driver.pid, signal.SIGTERM)
    status, said = driver.end()
    made = len(calls(tmp_path))
    assert status == 130 and "stopped: the same command goes on" in said, said
    assert made == len(stamps(tmp_path / "out")) < 40 and f"out: {made} made" in said
    assert not parts(tmp_path / "out")
    (tmp_path / "quick").touch()
    status, said = start(cluster, tmp_path).end()
    assert status == 0 and f"{40 - made} made, {made} kept" in said, said
    assert counted(tmp_path) == dict.fromkeys(prompts, 1)


def test_two_drivers_in_one_folder_are_harmless(cluster: Nodes, tmp_path: Path):
    prompts = [f"cat {i}; sleep 0.1" for i in range(30)]
    put_prompts(put_toy(tmp_path / "here"), prompts)
    here = tmp_path / "here"
    both = [start(cluster, here, "--workers", 1) for _ in range(2)]
    for each in both:
        status, said = each.end()
        assert status == 0, said
    assert files(here / "out") == files(alone(tmp_path / "alone", prompts))
    assert [row["prompt"] for row in rows(here / "out")] == prompts and not parts(here / "out")
    assert max(counted(here).values()) <= 2


def test_a_slow_store_holds_the_workers_back(cluster: Nodes, tmp_path: Path):
    put_prompts(put_toy(tmp_path), [f"cat {i}" for i in range(12)])
    (tmp_path / "slow_store").touch()
    status, said = start(cluster, tmp_path).end()
    assert status == 0, said
    begun = [(when, 1) for when, _, _ in calls(tmp_path)]
    kept = [(when, -1) for when, _, _ in calls(tmp_path, "kept.log")]
    now, most = 0, 0
    for _, change in sorted(begun + kept):
        now += change
        most = max(most, now)
    assert now == 0 and len(kept) == 12 and most == WORKERS


@pytest.fixture
def small_disk(tmp_path: Path):
    """A disk of half a MiB."""
    place = tmp_path / "out"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)]
    if shutil.which("mount") is None:
        pytest.skip("there is no mount")
    tried = subprocess.run(mount, capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no small disk can be mounted: {tried.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_stops_it_until_there_is_room(cluster: Nodes, tmp_path: Path, small_disk: Path):
    put_toy(tmp_path)
    prompts = [f'{{"prompt": "cat {i}", "size": 128}}' for i in range(30)]  # about 45 kB each
    put_prompts(tmp_path, prompts, "prompts.jsonl")
    words = ("batch", MODEL, "prompts.jsonl", "--out", "out", "--budget", 5, "--steps", 20)
    more = ("--ray", cluster.address)
    status, said = Command(tmp_path, *words, *more, env=cluster.env).end()
    assert status == 2 and "No space left on device" in said and "Traceback" not in said, said
    assert f"geoshrink batch: {small_disk}/" in said and "cannot be written" in said
    check_whole(small_disk)
    before = stamps(small_disk)
    assert 0 < len(before) < 30 and len(calls(tmp_path)) <= len(before) + 2 * WORKERS
    status, _ = Command(tmp_path, *words, *more, env=cluster.env).end()
    assert status == 2  # nothing has changed
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    status, said = Command(tmp_path, *words, *more, env=cluster.env).end()
    assert status == 0, said
    check_whole(small_disk)
    assert len(rows(small_disk)) == 30 and before.items() <= stamps(small_disk).items()
    assert len(parts(small_disk)) <= 2 * WORKERS  # of workers that were let go in a write


def test_local_is_a_cluster_of_its_own(cluster: Nodes, tmp_path: Path):
    """Also where another one runs on this machine and is named."""
    put_prompts(put_toy(tmp_path), ["a cat", "a dog"])
    env = {**cluster.env, "RAY_ADDRESS": cluster.address}
    mine = batch(tmp_path, "--ray", "local", "--workers", 1, env=env)
    busy = []

    def ended() -> bool:
        busy.append(cluster.tell("cpus"))
        return not mine.process.is_alive()

    until(ended, 180, 0.1)
    status, said = mine.end()
    assert status == 0 and "2 made" in said, said
    assert {*busy} == {WORKERS}


def test_more_than_there_is_says_so(cluster: Nodes, tmp_path: Path):
    put_prompts(put_toy(tmp_path), ["a cat"])
    status, said = start(cluster, tmp_path, "--cpus-per-worker", 64).end()
    assert status == 2 and "Ray has no room for a worker with {'num_cpus': 64}" in said, said
