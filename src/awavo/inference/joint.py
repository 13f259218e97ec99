"""q over joint sequences of discrete actions: P products of categorical distributions, the cells of the candidates."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from awavo.inference.cells import compress
from awavo.inference.wvi import resample
from awavo.types import Discrete

MUTATION = 0.1
SMOOTH = 0


def joint(space: Discrete, config, seq):
    _, num_memory, num_prior = seq.shares(config)
    horizon, num, count = config.horizon, space.num, config.num_particles
    defining = seq.LinearForms(num_forms=1 if config.degree == 1 else 4, degree=config.degree)

    def prepare(key, q):
        if SMOOTH == 1:
            near = seq.nearness(q.reshape(count, -1))
            q = jnp.einsum("pr,rna->pna", near / near.sum(1, keepdims=True), q)
        elif SMOOTH == 2:
            q = jnp.broadcast_to(q.mean(0), q.shape)
        elif SMOOTH == 3:
            near = seq.nearness(q.reshape(count, -1))
            q = 0.5 * jnp.einsum("pr,rna->pna", near / near.sum(1, keepdims=True), q) + 0.5 * q.mean(0)
        rows = jnp.swapaxes(q, 0, 1)[:, jnp.arange(num_memory) % count]
        memory = (1 - MUTATION) * rows + MUTATION / num
        prior = jnp.full((horizon, num_prior, num), 1.0 / num)
        others = jnp.log(jnp.concatenate([memory, prior], 1) + 1e-6)
        return jax.random.gumbel(key, (horizon, config.num_sequences, num)), others

    def propose(prepared, policy):
        noise, others = prepared
        mixed = (1 - seq.DISCRETE_NOISE) * jax.nn.softmax(policy.logits) + seq.DISCRETE_NOISE / num
        return jnp.argmax(jnp.concatenate([jnp.log(mixed), others]) + noise, -1)

    def move(key, q, actions, weights, slices):
        target = jnp.swapaxes(jax.nn.one_hot(actions, num), 0, 1).reshape(config.num_sequences, -1)
        if config.metric == "kl":
            flat, distance = target[resample(key, weights, count)], jnp.zeros(())
        else:
            steps = seq.ASCENT_STEPS if config.slices == "adaptive" else 0
            flat, distance = compress(target, weights, slices, count, defining=defining, num_steps=steps)
        return seq.committed(flat, q[0].reshape(-1)).reshape(q.shape), target, distance

    def pick(key, q, greedy):
        near = seq.nearness(q.reshape(count, -1))[0]
        first = near @ q[:, 0] / near.sum()
        return jnp.argmax(first) if greedy else jax.random.categorical(key, jnp.log(first + 1e-9))

    return seq.Sequences(
        start=lambda: jnp.full((count, horizon, num), 1.0 / num),
        shift=lambda q: jnp.concatenate([q[:, 1:], jnp.full_like(q[:, :1], 1.0 / num)], 1),
        prepare=prepare,
        propose=propose,
        execute=lambda actions: actions,
        move=move,
        pick=pick,
        draw=lambda key, n: jax.random.randint(key, (n,), 0, num),
    )
