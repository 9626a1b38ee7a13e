"""A replay server that is away: its jobs wait, end when asked, and never take another's for it."""

import contextlib
import signal
import threading

import pytest
import reverb

from actor_learner import experiment as experiment_lib
from actor_learner import run_directory
from actor_learner.jobs.exchange import publisher, replay_connection
from actor_learner.jobs.workers import actor, learner
from actor_learner.replay.server import server
from actor_learner.runs import contract, epoch, model
from actor_learner.support import errors, reverb_calls
from tests.jobs import job_processes, jobs_in_process

pytestmark = pytest.mark.timeout(300)

GIN_FILE = "dqn_cartpole"
BINDINGS = (
    "Experiment.environment_steps = 1_000_000_000",
    "Experiment.initial_random_steps = 100",
    "Experiment.collect_steps = 64",
    "GymnasiumEnvironment.num_envs = 4",
    "dqn.fc_layer_params = (4,)",
)


class Run:
    """A replay server in a process of its own; its learner and an actor in this one."""

    def __init__(self, directory, source, closing):
        self._machine = job_processes.Machine(directory / "machine")
        path = self._machine.directory / jobs_in_process.RUN
        flags = [f"--gin_param={binding}" for binding in source.bindings]
        self.process = self._machine.start(
            "replay", f"--gin_file={GIN_FILE}", *flags, f"--run={path}"
        )
        closing.callback(self.process.kill)
        self.watch = job_processes.Watch(str(path / "registry"), jobs_in_process.RUN)
        closing.callback(self.watch.names.close)
        self.watch.wait(lambda: self.watch.is_running("replay"), "it serves", [self.process])
        self.run_dir = run_directory.RunDirectory(directory / "mine")
        self.run_dir.path.mkdir()
        self._started = []

    def start(self, worker, kind, **options):
        jobs_in_process.configure(worker, kind, None, names=self.watch.names, **options)
        self._started.append(worker)
        return worker

    def start_actor(self):
        # Its learner, in the same thread, has to answer meanwhile.
        return self.start(actor.ActorJob(), "actor")

    def start_learner(self):
        made = self.start(learner.LearnerJob(), "learner", run_dir=self.run_dir)
        made.poll()  # So that actors hear of it.
        return made

    def end(self, *jobs):
        """Ends jobs as SIGTERM does; all that are left if none is named."""
        for made in jobs or list(self._started):
            self._started.remove(made)
            made.job.stopping.set()
            made.save()
            made.close()
            jobs_in_process.end(made.job)


def written(replay, table):
    """How many items anybody has ever written to a table."""
    found = reverb_calls.fetch_table(reverb.Client(replay.address), table, 60.0)
    return found.rate_limiter_info.insert_stats.completed


@pytest.fixture(autouse=True)
def haste(monkeypatch):
    """A server that does not answer is asked again the sooner."""
    monkeypatch.setattr(replay_connection, "_TRY_SECONDS", 1.0)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with contextlib.ExitStack() as closing:
        source = closing.enter_context(jobs_in_process.configured(GIN_FILE, *BINDINGS))
        yield Run(tmp_path_factory.mktemp("outages"), source, closing)


@pytest.fixture
def run(served):
    yield served
    served.process.process.send_signal(signal.SIGCONT)
    served.end()


def train_step(made):
    return made.status()["steps"]


def train(run, made_learner, made_actor):
    """Lets both work until a little was learnt."""
    enough = train_step(made_learner) + 10
    jobs_in_process.poll_until(
        lambda: train_step(made_learner) >= enough, "it has trained", made_actor, made_learner
    )


def test_a_learner_that_comes_back_publishes_nothing_older_than_its_checkpoint(run, monkeypatch):
    published = []
    publish = publisher.Publisher._publish

    def noting(self, version):
        published.append(version)
        publish(self, version)

    monkeypatch.setattr(publisher.Publisher, "_publish", noting)
    first = run.start_learner()
    made_actor = run.start_actor()
    train(run, first, made_actor)
    trained = train_step(first)
    run.end()
    assert published[0] == 0 < trained
    published.clear()
    run.start_learner()
    assert set(published) == {trained}


def test_every_step_is_counted_once_also_by_a_learner_that_comes_back(run):
    first, made_actor = run.start_learner(), run.start_actor()
    before = first.status()["environment_steps"]
    train(run, first, made_actor)
    run.end(first)  # Saves with what it has counted by then.
    second = run.start_learner()

    def counted():
        return second.status()["environment_steps"] - before

    jobs_in_process.poll_until(
        lambda: counted() == made_actor.status()["steps"], "all is counted", second, made_actor
    )
    for _ in range(3):  # What is reported once more changes nothing.
        made_actor._reports.send()
        second.poll()
    jobs_in_process.poll_until(
        lambda: counted() == made_actor.status()["steps"], "all is counted", second, made_actor
    )


def test_a_learner_that_was_superseded_saves_nothing_and_ends(run):
    old = run.start_learner()
    made_actor = run.start_actor()
    train(run, old, made_actor)
    saved = set((run.run_dir.tensorboard / "checkpoints").glob("*"))
    epoch.Epoch.begin(run.run_dir)  # As its successor does.
    with pytest.raises(errors.SupersededError, match="another process has begun to train"):
        old.poll()
    with pytest.raises(errors.SupersededError):
        old.save()
    assert set((run.run_dir.tensorboard / "checkpoints").glob("*")) == saved
    old.close()
    jobs_in_process.end(old.job)
    run._started.remove(old)


def test_an_actor_waits_for_its_server_and_ends_when_asked_to(run, monkeypatch):
    # Whoever sat out a wait, instead of giving it up, would not be done within the test's time.
    monkeypatch.setattr(actor, "_LAST_REPORT_SECONDS", 100_000.0)
    made_learner, made_actor = run.start_learner(), run.start_actor()
    train(run, made_learner, made_actor)
    run.process.process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(made_actor, "_has_no_time", lambda: True)
    while not made_actor._replay.is_away:  # Until an item is complete, and stays under way.
        made_actor._take_turn()
    steps = made_actor.status()["steps"]
    assert not made_actor.poll().done
    assert made_actor.status()["steps"] == steps
    ended = threading.Event()

    def poll_learner():
        """Takes the last report, whose answer the actor waits for."""
        while not ended.wait(0.05):
            made_learner.poll()

    thread = threading.Thread(target=poll_learner)
    thread.start()
    try:
        run.end(made_actor)
    finally:
        ended.set()
        thread.join()


def test_nothing_is_written_to_and_learnt_from_another_runs_server(run):
    """The last of these tests: this run's server is gone."""
    made_learner, made_actor = run.start_learner(), run.start_actor()
    train(run, made_learner, made_actor)
    address = made_learner._replay.address
    specs = contract.specs_of(made_learner._replay.contract)
    theirs = model.Model(
        experiment_lib.Experiment(),
        *specs,
        made_learner._replay.num_lanes,
        run_id="f" * 32,
        seed=0,
    ).plan
    run.process.kill()
    trained = train_step(made_learner)
    with server.ReplayServer(
        theirs.stream.tables(theirs.experience), int(address.rpartition(":")[2])
    ) as replay:
        with pytest.raises(errors.OtherRunError, match="has no table"):
            jobs_in_process.poll_until(lambda: False, "the actor sees it", made_actor, made_learner)
        with pytest.raises(errors.OtherRunError, match="has no table"):
            jobs_in_process.poll_until(lambda: False, "the learner sees it", made_learner)
        # It may have used up what it had before.
        assert train_step(made_learner) <= trained + 1_000
        assert written(replay, theirs.stream.table_name) == 0
        run.end()
        assert written(replay, theirs.stream.table_name) == 0
