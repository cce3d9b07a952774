"""Many prompts on many GPUs, on paper: a simulation of one batch, event by event.

A worker loads the model, then again and again: makes a sample, writes it, tells the driver, gets
the next job. Drivers and the store are servers that take one thing at a time. Workers and nodes
fail at random; what was half made is made again.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from dataclasses import dataclass, field
from math import inf, log1p

HOUR = 3600.0


@dataclass(frozen=True)
class World:
    """
    prompts       how many
    gpus          workers, one each
    seconds       of the GPU for a prompt: each prompt gets one of these at random
    failing       the probability that a worker fails in one hour
    node_failing  that a node fails in one hour, and all its workers with it
    node          GPUs of a node
    broken        share of failures that leave the worker alive
    known         that it cannot go on is known: it is replaced at once, and its job given to
                  another; else every job raises from then on, and is written as failed
    quick         seconds of a job that raises
    back          seconds until what failed is there again; then it loads
    noticed       seconds until the driver knows
    load          seconds until a worker is ready
    encode        seconds of a sample's file, before it is written; the GPU waits
    latency       seconds of one request to the store, one after the other; the GPU waits
    requests      to the store for a prompt
    limit         requests a second that the store takes
    driver        seconds of the driver for a job
    drivers       each with its own share of prompts and GPUs
    tries         of a job whose worker died
    """

    prompts: int = 1_000_000
    gpus: int = 1000
    seconds: tuple[float, ...] = (2.0,)
    failing: float = 0.01
    node_failing: float = 0.0
    node: int = 8
    broken: float = 0.0
    known: bool = True
    quick: float = 0.01
    back: float = 600.0
    noticed: float = 30.0
    load: float = 120.0
    encode: float = 0.0
    latency: float = 0.0
    requests: int = 2
    limit: float = inf
    driver: float = 0.0
    drivers: int = 1
    tries: int = 3
    seed: int = 0


@dataclass
class Told:
    """What came of it; seconds of GPUs, but for the makespan and the ideal.

    ideal     the makespan if GPUs did nothing but make samples, once
    useful    that made a sample that was kept
    lost      of samples whose worker failed
    loading   models
    down      until what failed was back
    writing   files, and the store's latency
    waiting   for the driver or the store's limit, or for nothing, at the end
    """

    world: World
    makespan: float = 0.0
    ideal: float = 0.0
    useful: float = 0.0
    lost: float = 0.0
    loading: float = 0.0
    down: float = 0.0
    writing: float = 0.0
    done: int = 0
    failed: int = 0
    redone: int = 0
    deaths: int = 0
    times: Counter[int] = field(default_factory=Counter)

    @property
    def waiting(self) -> float:
        spent = self.useful + self.lost + self.loading + self.down + self.writing
        return self.world.gpus * self.makespan - spent

    @property
    def rate(self) -> float:
        """Jobs a second, once models are loaded."""
        return (self.done + self.failed) / (self.makespan - self.world.load)


def simulate(world: World, counted: bool = False) -> Told:
    """One batch. The same world and seed give the same numbers.

    counted   how often each prompt was kept is told, too
    """
    return Batch(world, counted).run()


class Batch:
    def __init__(self, world: World, counted: bool):
        self.world, self.counted, self.told = world, counted, Told(world)
        draw = random.Random(world.seed)
        self.seconds = draw.choices(world.seconds, k=world.prompts)
        self.chance = random.Random(world.seed + 1)
        n, lanes = world.gpus, world.drivers
        self.lane = [w // world.node % lanes for w in range(n)]
        self.job = [-1] * n  # of each worker
        self.began = [0.0] * n
        self.round = [0] * n  # events of earlier rounds are void
        self.up = [0.0] * n  # from when on it can fail
        self.bad = [False] * n
        self.fresh = list(range(lanes))  # the next prompt of each driver
        self.again: list[deque[int]] = [deque() for _ in range(lanes)]
        self.idle: list[list[int]] = [[] for _ in range(lanes)]
        self.free = [0.0] * lanes  # when each driver is
        self.tries: Counter[int] = Counter()
        self.heap = [(world.load, w, 0) for w in range(n)]
        self.loads = {w: 0.0 for w in range(n)}  # since when each loads
        one = -log1p(-world.failing) / HOUR * n
        node = -log1p(-world.node_failing) / HOUR * -(-n // world.node)
        self.rates = one, node

    def run(self) -> Told:
        world, told, heap = self.world, self.told, self.heap
        slot, store = world.requests / world.limit, 0.0
        wait, put = world.latency * world.requests, world.encode
        job, began, bad, free, lane = self.job, self.began, self.bad, self.free, self.lane
        seconds, quick, cost, late = self.seconds, world.quick, world.driver, 0.0
        failure = self.next_failure(0.0)
        useful, done, failed = 0.0, 0, 0
        while done + failed + told.failed < world.prompts:
            if heap[0][0] > failure:
                self.fail(failure)
                failure = self.next_failure(failure)
                continue
            t, w, turn = heapq.heappop(heap)
            if w < 0:  # a job comes back
                self.give_back(t, turn)
                continue
            if turn != self.round[w]:
                continue
            own, j = lane[w], job[w]
            if j < 0:
                self.loaded(w, t)
            else:
                store = (t if t > store else store) + slot
                if bad[w]:
                    t = store + world.latency
                    failed += 1
                else:
                    t = store + wait
                    done += 1
                    useful += seconds[j]
                    if self.counted:
                        told.times[j] += 1
            ready = (t if t > free[own] else free[own]) + cost
            free[own] = ready
            late = max(late, ready) if j >= 0 else late
            j = self.next(own)
            job[w], began[w] = j, ready
            if j < 0:
                self.idle[own].append(w)
            else:
                made = quick if bad[w] else seconds[j] + put
                heapq.heappush(heap, (ready + made, w, turn))
        told.makespan, told.useful, told.done = late, useful, done
        told.failed += failed
        told.ideal = sum(seconds) / world.gpus
        told.writing = done * (put + wait)
        self.cut(late)
        return told

    def next(self, own: int) -> int:
        """A job that came back, else the next prompt; -1: there is none."""
        if self.again[own]:
            return self.again[own].popleft()
        j = self.fresh[own]
        if j >= self.world.prompts:
            return -1
        self.fresh[own] = j + self.world.drivers
        return j

    def loaded(self, w: int, t: float) -> None:
        since = self.loads.pop(w, None)
        if since is not None:
            self.told.loading += t - since

    # -- failures

    def next_failure(self, t: float) -> float:
        rate = sum(self.rates)
        return t + self.chance.expovariate(rate) if rate else inf

    def fail(self, t: float) -> None:
        """A worker, or a node with all its workers."""
        world = self.world
        if self.chance.random() * sum(self.rates) < self.rates[0]:
            hit = [self.chance.randrange(world.gpus)]
        else:
            first = self.chance.randrange(-(-world.gpus // world.node)) * world.node
            hit = list(range(first, min(first + world.node, world.gpus)))
        for w in hit:
            if t < self.up[w] or self.bad[w]:
                continue
            if w in self.loads or self.chance.random() >= world.broken:
                self.die(w, t, world.back, world.noticed)
            elif world.known:
                self.die(w, t, 0.0, 0.0)
            else:
                self.break_down(w, t)

    def die(self, w: int, t: float, back: float, noticed: float) -> None:
        told, j = self.told, self.job[w]
        told.deaths += 1
        self.loaded(w, t)
        if j >= 0:
            told.lost += max(0.0, t - self.began[w])
            heapq.heappush(self.heap, (t + noticed, -1 - self.lane[w], j))
        elif w in self.idle[self.lane[w]]:
            self.idle[self.lane[w]].remove(w)
        self.job[w] = -1
        self.round[w] += 1
        self.up[w] = self.loads[w] = t + back
        told.down += back
        heapq.heappush(self.heap, (t + back + self.world.load, w, self.round[w]))

    def break_down(self, w: int, t: float) -> None:
        """It lives, and what it is given raises."""
        self.told.deaths += 1
        self.bad[w] = True
        if self.job[w] >= 0:
            self.told.lost += max(0.0, t - self.began[w])
            self.round[w] += 1
            heapq.heappush(self.heap, (t, w, self.round[w]))

    def give_back(self, t: float, j: int) -> None:
        """The driver knows that its worker is gone: another gets the job."""
        own = j % self.world.drivers
        self.tries[j] += 1
        if self.tries[j] >= self.world.tries:
            self.told.failed += 1
            return
        self.told.redone += 1
        self.again[own].append(j)
        if self.idle[own]:
            w = self.idle[own].pop()
            self.round[w] += 1
            heapq.heappush(self.heap, (t, w, self.round[w]))

    def cut(self, end: float) -> None:
        """What was begun and had not ended when the batch did."""
        for since in self.loads.values():
            self.told.loading += max(0.0, end - since)
            self.told.down -= max(0.0, since - end)
