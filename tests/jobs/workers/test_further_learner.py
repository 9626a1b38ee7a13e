"""The learner of a further policy, polled in the test's process: resuming, ending, refusals."""

import argparse
import pathlib
import threading
import uuid

import gin
import pytest

from actor_learner import config, jobs_settings, run_directory
from actor_learner import experiment as experiment_lib
from actor_learner.commands import control, worker_table
from actor_learner.jobs import kinds, main, states, status
from actor_learner.jobs.exchange import news
from actor_learner.jobs.presence import names
from actor_learner.jobs.workers import actor, evaluator, further_learner, learner, replay
from actor_learner.launch import job_spec
from actor_learner.messaging import protocol
from actor_learner.runs import further_policy, one_process
from actor_learner.support import errors
from tests.jobs import jobs_in_process

pytestmark = pytest.mark.timeout(400)

GIN_FILE = str(pathlib.Path(__file__).parents[1] / "two_policies.gin")
BINDINGS = (
    "Checkpoints.save_replay = True",
    "Evaluation.interval = 0",
    "Jobs.patience_seconds = 60",
)
OTHERS = "learner-others"


@pytest.fixture(autouse=True)
def clear():
    yield
    gin.clear_config()


@pytest.fixture
def run(tmp_path):
    made = run_directory.RunDirectory(tmp_path / jobs_in_process.RUN)
    made.path.mkdir()
    return made


def train_alone(run, environment_steps):
    """Trains in one process; returns the counters of both policies before and after."""
    steps = f"Experiment.environment_steps = {environment_steps}"
    config.load(config.ConfigSource((GIN_FILE,), (*BINDINGS, steps)))
    with one_process.OneProcess(experiment_lib.Experiment(), run, seed=1) as training:
        (others,) = training._further._all

        def now():
            return [(each.environment_step, each.train_step) for each in (training, others)]

        began = now()
        assert training.run() == one_process.COMPLETED
        return began, now()


class Jobs:
    """The jobs of a run whose further policy is `others`, by the names of the first ones."""

    def __init__(self, run, *bindings):
        self._run, self._space, self._workers = run, uuid.uuid4().hex, {}
        self._configured = jobs_in_process.configured(GIN_FILE, *BINDINGS, *bindings)

    def __enter__(self):
        self._configured.__enter__()
        return self

    def __exit__(self, *exception):
        for kind in reversed(list(self._workers)):
            self._workers[kind].close()
            jobs_in_process.end(self._workers[kind].job)
        self._configured.__exit__(*exception)

    def start(self, kind, worker, **options):
        self._workers[kind] = jobs_in_process.configure(
            worker, kind, self._space, run_dir=self._run, **options
        )
        return self._workers[kind]

    def start_all(self):
        self.start("replay", replay.ReplayJob())
        self.start("learner", learner.LearnerJob()).poll()
        self.start(OTHERS, further_learner.FurtherLearnerJob("others")).poll()
        self.start("actor", actor.ActorJob())

    def counters(self):
        """Environment and train steps of both learners."""
        told = [self._workers[kind].status() for kind in ("learner", OTHERS)]
        return [(status["environment_steps"], status["steps"]) for status in told]

    def poll_until(self, condition, what):
        workers = [self._workers[kind] for kind in ("actor", "learner", OTHERS)]
        jobs_in_process.poll_until(condition, what, *workers)

    def save(self):
        for kind in ("learner", OTHERS, "replay"):
            self._workers[kind].save()


def test_each_policy_goes_from_one_process_to_jobs_and_back(run):
    _, alone = train_alone(run, 640)
    assert alone[1] == (1280, int((1280 - 300) * 0.05))
    with Jobs(run, "Experiment.environment_steps = 1_000_000") as jobs:
        jobs.start_all()
        assert jobs.counters() == alone
        jobs.poll_until(
            lambda: all(
                now[0] >= then[0] + 600 and now[1] > then[1]
                for now, then in zip(jobs.counters(), alone)
            ),
            "both have learned",
        )
        jobs.save()
        ended = jobs.counters()
    began, again = train_alone(run, ended[0][0] + 200)
    assert began == ended
    assert again[1][0] == ended[1][0] + 2 * (again[0][0] - ended[0][0])
    assert all(now[1] > then[1] for now, then in zip(again, ended))
    # Every one of them was an incarnation of its learner.
    others = further_policy.directory_of(run, "others")
    assert [(each.path / "epoch").read_text() for each in (run, others)] == ["3\n", "3\n"]


def test_a_further_learner_ends_when_main_has_and_nobody_needs_it(run):
    with Jobs(run, "Experiment.environment_steps = 1_000") as jobs:
        jobs.start_all()
        rating = jobs.start("evaluator", evaluator.EvaluatorJob())
        chief, others, acting = (jobs._workers[kind] for kind in ("learner", OTHERS, "actor"))
        jobs.poll_until(lambda: chief._ending is not None, "main is trained")
        jobs_in_process.poll_until(lambda: is_done(acting.poll()), "the actor ends", chief, others)
        assert others._ending is None  # The actor has yet to report to it.
        acting._reports.finish = acting._further[0].reports.finish = lambda seconds: None
        for sender in (acting._reports, acting._further[0].reports):
            sender._is_last = True
            sender._send()
        jobs_in_process.poll_until(lambda: others._ending is not None, "it saves", chief, others)
        (steps, _), (other_steps, trained) = jobs.counters()
        assert other_steps == 2 * steps and trained == int((other_steps - 300) * 0.05)
        # The evaluator has not rated the final version yet: it may need the policy.
        for _ in range(20):
            assert not is_done(chief.poll()) and not is_done(others.poll())
        rater = threading.Thread(target=poll_to_the_end, args=[rating])
        rater.start()  # It waits in its polls for answers of the others.
        jobs_in_process.poll_until(
            lambda: not rater.is_alive(), "the final version is rated", chief, others
        )
        assert rating._others[0].version == trained
        ended = []
        jobs_in_process.poll_until(
            lambda: is_done(others.poll()) and not ended.append("others"), "it ends", chief
        )
        jobs_in_process.poll_until(
            lambda: is_done(chief.poll()) and not ended.append("main"), "main ends"
        )
        assert ended == ["others", "main"]
    exported = further_policy.directory_of(run, "others").policies / "greedy_policy"
    assert (exported / "saved_model.pb").exists()


def poll_to_the_end(worker):
    while not is_done(worker.poll()):
        pass


def is_done(result):
    return getattr(result, "done", result) is True


def test_a_policy_that_the_run_does_not_train_is_refused(run):
    with Jobs(run) as jobs:
        jobs.start("replay", replay.ReplayJob())
        with pytest.raises(errors.ConfigError, match="does not train a policy 'nobody'.*others"):
            jobs.start("learner-nobody", further_learner.FurtherLearnerJob("nobody"))
    assert not (run.path / further_policy.AGENTS).exists()


def test_on_policy_learners_learn_beside_one_that_replays(run):
    bindings = (
        "others/AgentSpec.agent = @ppo",
        "others/AgentSpec.replay = @UnrollQueue()",
        "UnrollQueue.unroll_length = 4",
        "others/AgentSpec.updates_per_step = None",
        "others/AgentSpec.batch_size = None",
        "others/AgentSpec.initial_random_steps = None",
        "ppo.fc_layer_params = (8,)",
        "ppo.minibatch_size = 16",
        "ppo.epochs = 1",
        "Experiment.environment_steps = 1_000_000",
    )
    with Jobs(run, *bindings) as jobs:
        jobs.start_all()
        jobs.poll_until(lambda: min(step for _, step in jobs.counters()) > 20, "both have learned")
        acting, trained = jobs._workers["actor"], jobs.counters()[1][1]
        steps = acting._further[0].acting.steps_taken
        assert steps == 2 * acting._acting.steps_taken
        # Each step is learned from once, in batches of 4 rows of 8 agents, few turns may wait; and
        # after 25 steps there is a boundary row.
        assert (steps - 3 * 2 * 64) // 32 <= trained <= steps * 26 // 25 // 32


def test_results_of_evaluators_are_refused(run):
    with Jobs(run) as jobs:
        jobs.start("replay", replay.ReplayJob())
        jobs.start("learner", learner.LearnerJob())
        others = jobs.start(OTHERS, further_learner.FurtherLearnerJob("others"))
        asking = jobs_in_process.make_job("evaluator", jobs._space)
        client = asking.connect(OTHERS, timeout=60.0)
        sent = client.submit(news.RESULT, {"evaluator": 0}, timeout_seconds=60.0)
        jobs_in_process.poll_until(sent.done, "it answers", others)
        with pytest.raises(protocol.RefusedError, match="for the learner of `main`"):
            sent.result()
        client.close()
        jobs_in_process.end(asking)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--policy=main"], "leave it out"),
        (["--policy=a b"], "not the name of a policy"),
        (["--policy=others", "--num_learners=2"], "--num_learners is for the learner of `main`"),
    ],
)
def test_flags_that_make_no_sense_for_a_further_policy_are_refused(flags, said, tmp_path, capsys):
    assert main.run(["learner", f"--run={tmp_path}/x", *flags]) == main.BAD_CONFIGURATION
    assert said in capsys.readouterr().err


def test_the_learner_of_a_policy_is_known_by_its_name():
    parsed = argparse.Namespace(policy="others")
    assert kinds.KINDS["learner"].name(parsed) == OTHERS
    entry = names.record("mine", OTHERS, 0)
    assert names.parse("mine", entry) == (OTHERS, 0, "record")
    assert control._job(OTHERS) == (OTHERS, None)
    assert control._job(f"{OTHERS}-0") == (OTHERS, 0)
    spec = job_spec.JobSpec(OTHERS, 0, [])
    assert not spec.ends_run and spec.stop_rank == job_spec.JobSpec("learner", 0, []).stop_rank
    with pytest.raises(errors.ConfigError, match="reserved"):
        jobs_settings.Jobs(extra={OTHERS: object})


def test_the_versions_of_a_further_policy_are_not_compared_with_those_of_main():
    workers = [status.Status(kind, 0, states.RUNNING, version=9) for kind in ("learner", "actor")]
    workers.append(status.Status(OTHERS, 0, states.RUNNING, version=4))
    assert worker_table.newest_version(workers) == 9
    lags = [line.split()[6] for line in worker_table.table(workers, 9)[1:]]
    assert lags == ["-", "0", "-"]
