"""Damage what event2vec reads, and see that each input is read or refused in one line.

    python -m fuzz --minutes 30 --jobs 2
    python -m fuzz --inputs 1000000 --jobs 2
    python -m fuzz --target npz --only 123456     # one input again; needs the same ../shared/data

Exit code 1 where anything escaped: another exception, a crash, a hang, too much memory, or a message that is long, of
several lines or has control characters. What escaped is kept with its input, once for each place in the code.
"""

import argparse
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

# Before torch and numpy are loaded: every thread of a library is lost in a fork.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1")

from fuzz.child import Limits, Slot
from fuzz.targets import TARGETS
from fuzz.watch import Job, Watcher, one_input, share_inputs

ENDLESS = 1 << 62


def main(arguments: list[str] | None = None) -> int:
    options = read_options(arguments)
    targets = [target for target in TARGETS if target.name in options.target]
    started = time.monotonic()
    watcher = Watcher(
        options.seed, Limits(options.seconds, options.megabytes), Path(options.keep), tell, options.only is not None
    )
    if options.only is not None:
        jobs = [one_input(Job(target, 0, 1), options.only) for target in targets]
    elif options.inputs:
        jobs = share_inputs(targets, options.inputs)
    else:
        jobs = [Job(target, 0, ENDLESS) for target in targets]
        watcher.deadline = started + 60 * options.minutes
    for stop in (signal.SIGINT, signal.SIGTERM):  # also where a shell started it in the background
        signal.signal(stop, lambda *_: watcher.stop())
    watcher.run(jobs, options.jobs)
    show(jobs, time.monotonic() - started, options)
    return 130 if watcher.stopped else int(any(job.escapes for job in jobs))


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    names = [target.name for target in TARGETS]
    parser = argparse.ArgumentParser("fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--minutes", type=float, default=5.0, help="how long, shared equally by all targets")
    parser.add_argument("--inputs", type=int, help="how many instead, shared by weight")
    parser.add_argument("--only", type=int, metavar="N", help="the input of this number alone")
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other inputs")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--seconds", type=float, default=5.0, help="after which one input counts as a hang")
    parser.add_argument("--megabytes", type=int, default=512, help="beyond which one input counts as an escape")
    parser.add_argument("--keep", default="fuzz/escapes", metavar="FOLDER", help="where what escaped is kept")
    return parser.parse_args(arguments)


def tell(job: Job) -> None:
    """How far a target is, after each of its turns."""
    inputs, kinds = job.totals[Slot.INPUTS], len({escape.key for escape in job.escapes})
    rate = inputs / max(job.seconds, 1e-9)
    print(f"{job.target.name}: {inputs:,.0f} inputs, {rate:,.0f} a second, {kinds} kinds of escapes", file=sys.stderr)


def show(jobs: list[Job], seconds: float, options: argparse.Namespace) -> None:
    print(f"{'target':<12}{'inputs':>12}{'read':>12}{'refused':>12}{'escapes':>9}{'slowest ms':>12}{'largest MB':>12}")
    sums = Counter[Slot]()
    for job in jobs:
        sums.update({slot: int(job.totals[slot]) for slot in (Slot.INPUTS, Slot.READ, Slot.REFUSED)})
        print(_line(job.target.name, job.totals, len(job.escapes)) + _peaks(job))
    print(_line("all", dict(sums), sum(len(job.escapes) for job in jobs)))
    for key, count in Counter(escape.key for job in jobs for escape in job.escapes).most_common():
        print(f"{count:>8} x {' | '.join(key)}")
    print(f"seed {options.seed}, {seconds / 60:.1f} minutes, {options.jobs} at a time; escapes are in {options.keep}")


def _line(name: str, totals: dict[Slot, float] | dict[Slot, int], escapes: int) -> str:
    counts = (totals.get(slot, 0) for slot in (Slot.INPUTS, Slot.READ, Slot.REFUSED))
    return f"{name:<12}" + "".join(f"{count:>12,.0f}" for count in counts) + f"{escapes:>9,}"


def _peaks(job: Job) -> str:
    return f"{job.totals[Slot.SLOWEST]:>12,.0f}{job.totals[Slot.LARGEST]:>12,.0f}"


if __name__ == "__main__":
    sys.exit(main())
