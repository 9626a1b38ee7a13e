#!/usr/bin/env bash
# One run on Slurm: sbatch slurm.sh [LEAF [RUN]]; RUN is a directory that the first node can write to.
#
# The first node of the allocation has Redis, through which the jobs find one another, the replay
# server and the learner; actors are spread over all nodes, one per task. Experience travels through
# the replay server, the policy and messages from job to job: only the first node writes to RUN.
# `actor-learner` and `redis-server` must be in the path of the nodes (module load, or a virtual
# environment in common).
#SBATCH --job-name=actor-learner
#SBATCH --nodes=3
# The first node needs room for Redis, the replay server and the learner, each of which is one task.
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=2
#SBATCH --mem-per-cpu=2G
#SBATCH --time=12:00:00
#SBATCH --output=actor-learner-%j.out
# Two minutes before the time is up all jobs are asked to end, and save.
#SBATCH --signal=B:TERM@120
set -euo pipefail

leaf=${1:-dqn_cartpole}
run=${2:-runs/$leaf-$SLURM_JOB_ID}
word=$(basename "$run")  # What jobs without the directory call the run.
# The other tasks are redis, replay, learner and evaluator.
tasks=$((SLURM_JOB_NUM_NODES * SLURM_NTASKS_PER_NODE))
actors=$((tasks - 4))
if ((actors < 1)); then
  echo "$tasks tasks leave no actor: one is needed for each of four other jobs" >&2
  exit 2
fi
if ((SLURM_NTASKS_PER_NODE < 3)); then
  echo "--ntasks-per-node=$SLURM_NTASKS_PER_NODE: the first node needs three" >&2
  exit 2
fi
# Since Slurm 22.05 steps do not have the processors of their job's tasks by themselves.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}

read -r first < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
redis_port=$((20000 + SLURM_JOB_ID % 10000))
replay_port=$((30000 + SLURM_JOB_ID % 10000))
# Other users of the cluster reach Redis, too. Its password stands in variables, not on command lines,
# which all users of a node can see.
REDIS_PASSWORD=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
export REDIS_PASSWORD
export ACTOR_LEARNER_REGISTRY="redis://:$REDIS_PASSWORD@$first:$redis_port/0"

# So do the keys without which jobs on several nodes do not talk to each other.
directory=$(mktemp -d)
actor-learner keys "$directory/keys" > /dev/null
ACTOR_LEARNER_KEYS=$(< "$directory/keys")
export ACTOR_LEARNER_KEYS
rm -r "$directory"

steps=()
step() {  # step SRUN-OPTIONS... -- COMMAND...: runs on part of the allocation, in the background
  local options=()
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  srun --exact --kill-on-bad-exit=0 "${options[@]}" "$@" &
  steps+=($!)
}

# Those that use the replay server are ended before it; srun passes the signal on to its tasks.
stop() {
  trap - TERM INT EXIT
  local index
  for ((index = ${#steps[@]} - 1; index >= 0; index--)); do
    kill -TERM "${steps[index]}" 2> /dev/null || true
    wait "${steps[index]}" 2> /dev/null || true
  done
}
trap 'stop; exit 143' TERM INT
trap stop EXIT

# Slurm does not start a failed step again: this does, also after a kill for want of memory (137) or a
# crash (134, 139), unless that would not help (2: the configuration is wrong, 5: failed for good, 6 and
# 7: a disk is full) or the job was told to end (3, 130, 143).
# The signal reaches the job itself; the shell only has to outlive it.
# shellcheck disable=SC2016  # Expanded by the shell that runs it.
again='stopping=0
trap "stopping=1" TERM
until "$@"; do
  code=$?
  case $code in 2 | 3 | 5 | 6 | 7 | 130 | 143) exit "$code" ;; esac
  if ((stopping)); then exit "$code"; fi
  echo "$1 $2 ended with code $code: started again" >&2
  sleep 5
  if ((stopping)); then exit 143; fi
done'

# shellcheck disable=SC2016
step --nodes=1 --ntasks=1 --nodelist="$first" -- \
  bash -c 'exec redis-server - "$@" <<< "requirepass $REDIS_PASSWORD"' redis \
  --bind 0.0.0.0 --port "$redis_port" --save ""
step --nodes=1 --ntasks=1 --nodelist="$first" -- \
  bash -c "$again" again \
  actor-learner replay --gin_file="$leaf" --run="$run" \
  --host="$first" --port="$replay_port"
step --nodes=1 --ntasks=1 --nodelist="$first" -- \
  bash -c "$again" again \
  actor-learner learner --gin_file="$leaf" --run="$run" \
    --num_evaluators=1
learner=$!
step --ntasks="$actors" -- \
  bash -c "set -- \"\$@\" --index=\$SLURM_PROCID; $again" again \
  actor-learner actor --gin_file="$leaf" --run="$word"
step --nodes=1 --ntasks=1 -- \
  bash -c "$again" again \
  actor-learner evaluator --gin_file="$leaf" --run="$word"
evaluator=$!

wait "$learner"
# It has the final version to rate.
wait "$evaluator" || echo "the evaluator has failed" >&2
