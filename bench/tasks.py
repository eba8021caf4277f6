"""Tokens per second of every task's generator, on one core.

    python bench/tasks.py [rounds]

Batches of 64 at the training length, with the options a user gets unasked and those of the task's worked examples. The
best round counts: data that is drawn slower than a small model trains would be the model's speed limit.
"""

from __future__ import annotations

import sys

import torch

from record import record
from rounds import best_of
from whence.tasks import TASKS

BATCH, ASKED = 64, 1e6
SECONDS = 1.0  # for each task


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    choices = dict.fromkeys(
        TASKS.choose(f"{task.name}:{options}") for task in TASKS for options in ["", *(e[0] for e in task.examples)]
    )
    built = {str(choice): choice.build() for choice in choices}
    lengths = {name: min(task.train_length, task.longest or task.train_length) for name, task in built.items()}
    seconds = best_of(
        {
            name: lambda task=task, length=lengths[name]: task.sample(generator, BATCH, length)
            for name, task in built.items()
        },
        rounds,
        SECONDS,
    )
    speeds = {name: round(BATCH * task.tokens(lengths[name]) / seconds[name]) for name, task in built.items()}
    for name, speed in speeds.items():
        print(f"{name:46} length {lengths[name]:3}  {speed / 1e6:6.1f} M tokens/s")
    slowest = min(speeds, key=lambda name: speeds[name])
    holds = "holds " if speeds[slowest] >= ASKED else "MISSED"
    print(f"{holds}  slowest: {slowest}, {speeds[slowest] / 1e6:.1f} M tokens/s; asked: {ASKED / 1e6:.0f} M")
    record("tasks", {"threads": 1, "batch": BATCH, "rounds": rounds, "tokens_per_second": speeds})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
