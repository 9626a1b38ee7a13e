"""A replay server that is away: its jobs wait, end when asked, and never take another's for it."""

import contextlib
import signal
import uuid

import pytest
import reverb

from actor_learner import experiment as experiment_lib
from actor_learner import run_directory
from actor_learner.jobs import actor, contract, job, learner, mailbox, names, replay_connection
from actor_learner.naming import memory
from actor_learner.parameters import publication, publisher
from actor_learner.replay.server import server
from actor_learner.runs import model
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
        machine = job_processes.Machine(directory / "machine")
        flags = [f"--gin_param={binding}" for binding in source.bindings]
        place = f"--run={machine.directory / 'mine'}"
        self.process = machine.start("replay", f"--gin_file={GIN_FILE}", *flags, place)
        closing.callback(self.process.kill)
        watch = job_processes.Watch(str(machine.directory / "mine" / "registry"), "mine")
        closing.callback(watch.names.close)
        replay = names.address("mine", "replay", 0)
        watch.wait(lambda: replay in watch.names.find_subtree("mine"), "it serves", [self.process])
        self.address = watch.names.get(replay)
        self.run_dir = run_directory.RunDirectory(directory / "mine")
        self.run_dir.path.mkdir()
        self._source = source
        self._space = uuid.uuid4().hex
        self._started = []

    def start_actor(self):
        made = jobs_in_process.configure(actor.ActorJob(self.address), "actor", self._space)
        self._started.append(made)
        return made

    def start_learner(self):
        made = learner.LearnerJob(self.address)
        options = {"run_dir": self.run_dir, "source": self._source}
        jobs_in_process.configure(made, "learner", self._space, **options)
        self._started.append(made)
        made.poll()  # So that actors hear of it.
        return made

    def end(self, *jobs):
        """Ends jobs as SIGTERM does; all that are left if none is named."""
        for made in jobs or list(self._started):
            self._started.remove(made)
            made.job.stopping.set()
            made.save()
            made.close()

    def others_server(self, run_id):
        """Another run's server at this one's address, in the place of this one."""
        asking = job.Job("actor", 0, "mine", memory.MemoryRegistry(self._space))
        found = replay_connection.Partner(asking, self.address)
        specs = contract.specs_of(found.contract)
        made = model.Model(experiment_lib.Experiment(), *specs, found.num_lanes, seed=0)
        self.process.kill()
        replay = server.ReplayServer(
            [
                *made.plan.stream.tables(made.plan.experience),
                *publication.publication_tables(made.published_variables()),
                mailbox.mailbox_table(mailbox.REPORTS),
                mailbox.mailbox_table(mailbox.EVALUATIONS),
                contract.contract_table(),
            ],
            int(self.address.rpartition(":")[2]),
        )
        contract.write(replay.client(), made.contract(run_id))
        return found.run_id, replay


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


def train(run, made_learner, made_actor):
    """Lets both work until a little was learnt."""
    enough = made_learner.train_step + 10
    jobs_in_process.poll_until(
        lambda: made_learner.train_step >= enough, "it has trained", made_actor, made_learner
    )


def test_a_learner_that_comes_back_publishes_nothing_older_than_its_checkpoint(run, monkeypatch):
    published = []
    publish = publisher.Publisher.publish

    def noting(self, version, **options):
        published.append(version)
        publish(self, version, **options)

    monkeypatch.setattr(publisher.Publisher, "publish", noting)
    first = run.start_learner()
    made_actor = run.start_actor()
    train(run, first, made_actor)
    run.end()
    assert published[0] == 0 < first.train_step
    published.clear()
    run.start_learner()
    assert set(published) == {first.train_step}


def test_an_actor_waits_for_its_server_and_ends_when_asked_to(run, monkeypatch):
    # Whoever sat out a wait, instead of giving it up, would not be done within the test's time.
    monkeypatch.setattr(actor, "_LAST_REPORTS_SECONDS", 100_000.0)
    monkeypatch.setattr(actor, "_REPORT_SECONDS", 100_000.0)
    made_learner, made_actor = run.start_learner(), run.start_actor()
    train(run, made_learner, made_actor)
    run.process.process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(made_actor, "_has_no_time", lambda: True)
    for _ in range(21):  # One more than may be under way.
        made_actor._report()
    made_actor._take_turn()  # Leaves items under way, too.
    steps = made_actor.status()["steps"]
    assert not made_actor.poll().done
    assert made_actor.status()["steps"] == steps
    run.end(made_actor)


def test_nothing_is_written_to_and_learnt_from_another_runs_server(run):
    """The last of these tests: this run's server is gone."""
    made_learner, made_actor = run.start_learner(), run.start_actor()
    train(run, made_learner, made_actor)
    theirs = "f" * 32
    ours, replay = run.others_server(theirs)
    with replay:
        for made in (made_actor, made_learner):
            trained = made_learner.train_step
            with pytest.raises(errors.OtherRunError, match=rf"\({theirs}, not {ours}\)"):
                jobs_in_process.poll_until(lambda: False, "it sees whose server it is", made)
        assert made_learner.train_step == trained
        assert [written(replay, table) for table in ("experience", mailbox.REPORTS)] == [0, 0]
        checkpoints = run.run_dir.tensorboard / "checkpoints"
        saved = set(checkpoints.iterdir())
        run.end()
        assert set(checkpoints.iterdir()) == saved
        assert [written(replay, table) for table in ("experience", mailbox.REPORTS)] == [0, 0]
