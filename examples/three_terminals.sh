#!/usr/bin/env bash
# Trains DQN on CartPole as separate jobs, from one terminal: examples/three_terminals.sh [RUN [LEAF]]
#
# What examples/three_terminals.md types into several terminals runs here in the background; the
# output of each job is in RUN/jobs/<job>/output. Ctrl-C ends all of them, and they save first.
set -euo pipefail

run=${1:-runs/mine}
leaf=${2:-dqn_cartpole}
python=${PYTHON:-python}

jobs=()

start() {  # start NAME ARGUMENTS...
  local name=$1
  shift
  mkdir -p "$run/jobs/$name"
  # In a session of its own: a Ctrl-C is for this script, which ends the jobs one after the other.
  setsid "$python" -m actor_learner.cli "$@" "--gin_file=$leaf" "--run=$run" \
    > "$run/jobs/$name/output" 2>&1 &
  jobs+=($!)
  echo "$name: process $!"
}

# Those that use the replay server are ended before it, so that nothing they have written is lost.
stop() {
  trap - INT TERM EXIT
  local index
  for ((index = ${#jobs[@]} - 1; index >= 0; index--)); do
    kill -TERM "${jobs[index]}" 2> /dev/null || true
    wait "${jobs[index]}" 2> /dev/null || true
  done
}
trap 'stop; exit 130' INT
trap 'stop; exit 143' TERM
trap stop EXIT

start replay-0 replay
start learner-0 learner --num_evaluators=1
learner=$!
start actor-0 actor
start evaluator-0 eval
evaluator=$!

echo "training; see $run/jobs/*/output and $run/metrics.csv"
if ! wait "$learner"; then
  echo "the learner has failed: see $run/jobs/learner-0/output" >&2
  exit 1
fi
# It has the final version to rate.
wait "$evaluator" || echo "the evaluator has failed: see $run/jobs/evaluator-0/output" >&2
echo "done: actor-learner eval $run"
