"""What a supervisor without a terminal keeps for its viewers."""

from actor_learner.launch import run_jobs, shared_view, view
from actor_learner.run_directory import RunDirectory


def test_a_viewer_sees_each_message_once_and_the_recent_ones_first():
    shared = shared_view.SharedView()
    for number in range(30):
        shared.message(str(number))
    shared.update([view.JobRow("actor-0", "actor", "running")])
    first = shared.look(None)
    assert first.messages == [str(number) for number in range(10, 30)]
    assert [row.name for row in first.rows] == ["actor-0"] and first.ending is None
    assert shared.look(first.seen).messages == []
    shared.message("30")
    assert shared.look(first.seen).messages == ["30"]


def test_a_viewer_who_was_away_misses_only_what_is_forgotten():
    shared = shared_view.SharedView()
    shared.message("first")
    seen = shared.look(None).seen
    for number in range(1_500):
        shared.message(str(number))
    messages = shared.look(seen).messages
    assert len(messages) == 1_000 and messages[-1] == "1499"


def test_a_viewer_of_a_supervisor_that_was_lost_sees_what_its_successor_says():
    lost, successor = shared_view.SharedView(), shared_view.SharedView()
    lost.message("begun")
    successor.message("begun again")
    assert successor.look(lost.look(None).seen).messages == ["begun again"]


def test_how_a_run_has_ended_is_left_in_its_directory(tmp_path):
    run_dir = RunDirectory(tmp_path / "run")
    assert shared_view.read_ending(run_dir) is None
    ending = run_jobs.Ending(4, ["completed without actor-1: run"])
    shared_view.write_ending(run_dir, ending)
    assert shared_view.read_ending(run_dir) == ending
    shared_view.forget_ending(run_dir)
    assert shared_view.read_ending(run_dir) is None
