"""PPO on gymnax's CartPole, collecting and learning compiled together by JAX: a peer of `tensor`.

python benchmarks/peers/jax_ppo.py rate --lanes=256 --minibatches=4 --seconds=10
python benchmarks/peers/jax_ppo.py target --lanes=256 --minibatches=4 --target=475 --seed=0

Run by the Python of the peers' environment; prints one line of JSON. One call of a jitted function
takes an unroll of all lanes, computes advantages and trains for all epochs, as PureJaxRL does; its
arguments are donated. Networks (two of 64x64), lanes, epochs, minibatches and the coefficients of
the loss are those of our runs in `benchmarks.tensor`.

`rate` gives {"steps_per_second", "collect_steps_per_second", "compile_seconds"}: of training, and
of the unroll alone. `target` gives {"seconds", "reached", "compile_seconds", "steps"}: from the
first step to the first mean greedy return of 20 episodes that reaches the target and is confirmed
by 20 others, evaluations included and compiling not.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from typing import Any, NamedTuple

import gymnax
import jax
import jax.numpy as jnp
import optax

LENGTH = 32
EPOCHS = 4
GAMMA, LAMBDA, CLIP, VALUE_WEIGHT, MAX_NORM = 0.99, 0.95, 0.2, 0.5, 0.5
EPISODES = 20
MAX_EPISODE_STEPS = 500

ENV, ENV_PARAMS = gymnax.make("CartPole-v1")


class Steps(NamedTuple):
    """What is kept of steps, leaves `[T, lanes, ...]`, or `[frames, ...]`."""

    observation: Any
    action: Any
    log_probability: Any
    value: Any
    reward: Any
    done: Any


class Carry(NamedTuple):
    """What training hands on from one iteration to the next."""

    parameters: Any
    optimizer: Any
    state: Any
    observation: Any
    key: Any


def make_network(key: Any, outputs: int, last_gain: float) -> list[tuple[Any, Any]]:
    sizes, gains = (4, 64, 64, outputs), (2**0.5, 2**0.5, last_gain)
    keys = jax.random.split(key, 3)
    return [
        (jax.nn.initializers.orthogonal(gain)(key, (inputs, units)), jnp.zeros(units))
        for key, inputs, units, gain in zip(keys, sizes, sizes[1:], gains)
    ]


def apply_network(layers: list[tuple[Any, Any]], x: Any) -> Any:
    for weights, bias in layers[:-1]:
        x = jnp.tanh(x @ weights + bias)
    weights, bias = layers[-1]
    return x @ weights + bias


def log_probability(logits: Any, action: Any) -> Any:
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], axis=1)[:, 0]


def step_lanes(key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any]:
    keys = jax.random.split(key, action.shape[0])
    observation, state, reward, terminated, truncated, _ = jax.vmap(
        ENV.step, in_axes=(0, 0, 0, None)
    )(keys, state, action, ENV_PARAMS)
    return observation, state, reward, jnp.logical_or(terminated, truncated)


def unroll(carry: Carry) -> tuple[Carry, Steps]:
    def step(carry: Carry, _: None) -> tuple[Carry, Steps]:
        key, of_action, of_step = jax.random.split(carry.key, 3)
        policy, value = carry.parameters
        logits = apply_network(policy, carry.observation)
        action = jax.random.categorical(of_action, logits)
        observation, state, reward, done = step_lanes(of_step, carry.state, action)
        kept = Steps(
            carry.observation,
            action,
            log_probability(logits, action),
            apply_network(value, carry.observation)[:, 0],
            reward,
            done,
        )
        return carry._replace(state=state, observation=observation, key=key), kept

    return jax.lax.scan(step, carry, None, LENGTH)


def advantages(steps: Steps, last_value: Any) -> Any:
    def back(carry: Any, step: Steps) -> Any:
        advantage, next_value = carry
        goes_on = 1.0 - step.done
        delta = step.reward + GAMMA * goes_on * next_value - step.value
        advantage = delta + GAMMA * LAMBDA * goes_on * advantage
        return (advantage, step.value), advantage

    first = (jnp.zeros_like(last_value), last_value)
    return jax.lax.scan(back, first, steps, reverse=True)[1]


def loss_of(parameters: Any, minibatch: Any) -> Any:
    steps, advantage, target = minibatch
    policy, value = parameters
    new = log_probability(apply_network(policy, steps.observation), steps.action)
    ratio = jnp.exp(new - steps.log_probability)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
    surrogate = jnp.minimum(ratio * advantage, clipped * advantage).mean()
    error = jnp.square(apply_network(value, steps.observation)[:, 0] - target).mean()
    return VALUE_WEIGHT * error - surrogate


def train(carry: Carry, *, adam: Any, minibatches: int) -> tuple[Carry, Any]:
    """One iteration: an unroll, and all epochs over it; returns the loss of the last minibatch."""
    carry, steps = unroll(carry)
    last_value = apply_network(carry.parameters[1], carry.observation)[:, 0]
    advantage = advantages(steps, last_value)
    frames = jax.tree.map(
        lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (steps, advantage, advantage + steps.value)
    )
    count = frames[1].shape[0]

    def step(state: Any, chosen: Any) -> Any:
        parameters, optimizer = state
        minibatch = jax.tree.map(lambda leaf: leaf[chosen], frames)
        loss, gradient = jax.value_and_grad(loss_of)(parameters, minibatch)
        update, optimizer = adam.update(gradient, optimizer)
        return (optax.apply_updates(parameters, update), optimizer), loss

    def epoch(state: Any, key: Any) -> Any:
        order = jax.random.permutation(key, count).reshape(minibatches, -1)
        return jax.lax.scan(step, state, order)

    key, of_epochs = jax.random.split(carry.key)
    (parameters, optimizer), losses = jax.lax.scan(
        epoch, (carry.parameters, carry.optimizer), jax.random.split(of_epochs, EPOCHS)
    )
    return carry._replace(parameters=parameters, optimizer=optimizer, key=key), losses[-1, -1]


def evaluate(policy: Any, key: Any) -> Any:
    """Mean return of greedy episodes."""
    of_reset, of_steps = jax.random.split(key)
    observation, state = jax.vmap(ENV.reset, in_axes=(0, None))(
        jax.random.split(of_reset, EPISODES), ENV_PARAMS
    )

    def step(carry: Any, key: Any) -> Any:
        observation, state, alive, total = carry
        action = apply_network(policy, observation).argmax(-1)
        observation, state, reward, done = step_lanes(key, state, action)
        return (observation, state, alive * (1.0 - done), total + alive * reward), None

    first = (observation, state, jnp.ones(EPISODES), jnp.zeros(EPISODES))
    keys = jax.random.split(of_steps, MAX_EPISODE_STEPS)
    return jax.lax.scan(step, first, keys)[0][3].mean()


def first_carry(lanes: int, adam: Any, seed: int) -> Carry:
    of_policy, of_value, of_reset, key = jax.random.split(jax.random.PRNGKey(seed), 4)
    parameters = (make_network(of_policy, 2, 0.01), make_network(of_value, 1, 1.0))
    observation, state = jax.vmap(ENV.reset, in_axes=(0, None))(
        jax.random.split(of_reset, lanes), ENV_PARAMS
    )
    return Carry(parameters, adam.init(parameters), state, observation, key)


def compiled(function: Any, *arguments: Any, donate: bool = True) -> tuple[Any, float]:
    """The function compiled for such arguments, and the seconds it took."""
    began = time.perf_counter()
    jitted = jax.jit(function, donate_argnums=(0,) if donate else ())
    return jitted.lower(*arguments).compile(), time.perf_counter() - began


def rate(function: Any, carry: Carry, steps: int, seconds: float) -> float:
    carry, result = function(carry)  # The first call may still allocate.
    jax.block_until_ready(result)
    began, calls = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        carry, result = function(carry)
        jax.block_until_ready(result)
        calls += 1
    return calls * steps / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("rate", "target"))
    parser.add_argument("--lanes", type=int, default=256)
    parser.add_argument("--minibatches", type=int, default=4)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of measuring each rate")
    parser.add_argument("--target", type=float, default=475.0)
    parser.add_argument("--interval", type=int, default=32_000, help="steps between evaluations")
    parser.add_argument("--steps", type=int, default=2_000_000, help="of training at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    adam = optax.chain(
        optax.clip_by_global_norm(MAX_NORM), optax.adam(options.learning_rate, eps=1e-5)
    )
    carry = first_carry(options.lanes, adam, options.seed)
    iterate, compile_seconds = compiled(
        functools.partial(train, adam=adam, minibatches=options.minibatches), carry
    )
    steps = options.lanes * LENGTH
    found: dict[str, Any] = {"compile_seconds": compile_seconds}
    if options.what == "rate":
        collect, _ = compiled(unroll, carry)
        again = first_carry(options.lanes, adam, options.seed)
        found["collect_steps_per_second"] = rate(collect, again, steps, options.seconds)
        found["steps_per_second"] = rate(iterate, carry, steps, options.seconds)
    else:
        found.update(to_target(options, iterate, carry, steps))
    print(json.dumps(found), flush=True)


def to_target(options: Any, iterate: Any, carry: Carry, steps: int) -> dict[str, Any]:
    key = jax.random.PRNGKey(options.seed + 1_000_003)
    rated, _ = compiled(evaluate, carry.parameters[0], key, donate=False)
    interval = max(1, round(options.interval / steps))
    began, taken, reached = time.perf_counter(), 0, False
    while taken < options.steps and not reached:
        for _ in range(interval):
            carry, _ = iterate(carry)
        taken += interval * steps
        key, first, second = jax.random.split(key, 3)
        policy = carry.parameters[0]
        reached = float(rated(policy, first)) >= options.target
        reached = reached and float(rated(policy, second)) >= options.target
    return {"seconds": time.perf_counter() - began, "reached": reached, "steps": taken}


if __name__ == "__main__":
    main()
