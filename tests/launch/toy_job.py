"""A job for tests of launchers, as a process: `python -m tests.launch.toy_job KIND …`.

What it does is decided by files in the run directory, which is how tests talk to it.
"""

import os
import pathlib
import subprocess
import sys
import time

from actor_learner.jobs import main, worker
from actor_learner.support import errors


class ToyJob(worker.Worker):
    def __init__(self, arguments):
        self._fail = arguments.fail
        self._grandchildren = arguments.grandchildren
        self._last_to_finish = arguments.after_learner
        self._slow_to_save = arguments.slow_to_save
        self._expect = arguments.expect
        self._stuck = arguments.stuck
        self._tell = arguments.tell
        self._steps = 0

    def configure(self):
        if self._fail == "configuration":
            raise errors.ConfigError("the toy has no batteries")
        if self._expect and pathlib.Path(self._expect).read_text() != "shipped":
            raise RuntimeError(f"{self._expect} is not what was shipped")
        for number in range(self._grandchildren):
            # One in a session of its own, as those who wish to escape would do.
            child = subprocess.Popen(["sleep", "1000"], start_new_session=bool(number))
            self._note("grandchildren", child.pid)
        if self._tell:
            self._note("told", os.environ.get(self._tell))
        self._note("pids", os.getpid())

    def poll(self):
        self._steps += 1
        if self._stuck:
            self.job.stopping.wait(1_000)
        if self._fail == "poll":
            raise RuntimeError(f"{self.job} broke its toy")
        if self._fail == "evaluation":
            raise errors.EvaluationError("the toy has no score")
        if self._fail == "nan":
            raise errors.NotFiniteError(f"{self.job} met a NaN")
        if self._last_to_finish:
            done = (self._run / "learner-0.saved").exists()
        else:
            done = (self._run / f"{self.job.kind}-{self.job.index}.finish").exists()
        return worker.PollResult(done=done, idle_seconds=0.02)

    def status(self):
        return {"steps": self._steps, "version": 10 if self.job.kind == "learner" else 7}

    def close(self):
        if self._slow_to_save:
            self._note("saving", os.getpid())
            time.sleep(1_000)
        # Before the note, at which others may end.
        with open(self._run / "order", "a") as file:
            file.write(f"{self.job.kind}-{self.job.index}\n")
        self._note("saved", os.getpid())

    @property
    def _run(self) -> pathlib.Path:
        return self.job.run_dir.path

    def _note(self, what, text):
        with open(self._run / f"{self.job.kind}-{self.job.index}.{what}", "a") as file:
            file.write(f"{text}\n")


def add_flags(parser):
    parser.add_argument("--fail", default="")
    parser.add_argument("--grandchildren", type=int, default=0)
    parser.add_argument("--after_learner", action="store_true")
    parser.add_argument("--expect")
    parser.add_argument("--tell", help="a variable to note")
    parser.add_argument("--slow_to_save", action="store_true")
    parser.add_argument("--stuck", action="store_true")


if __name__ == "__main__":
    kind = sys.argv[1]
    sys.exit(main.run_job(kind, ToyJob, sys.argv[2:], add_flags=add_flags, needs_config=False))
