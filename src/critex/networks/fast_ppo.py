"""PPO's loss and its actions, written out for plain Linear+Tanh networks on the CPU; `fast` says when they are used.

In numpy: these networks are so small that calls cost more than arithmetic, and numpy's calls cost less than torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from critex.networks.fast import flat, layers_of, with_gradients
from critex.networks.policies import Categorical, Gaussian

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = list[tuple[Array, Array]]  # weight and bias; a tanh after every layer but the last
Backward: TypeAlias = Callable[[Array, float], tuple[Array, list[Array]]]
"""From ∂L/∂log π(a|s) [B] and −∂L/∂H to ∂L/∂out [B, o] and the gradients of parameters that belong to no layer."""


def acting(agent: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """The function from observations [N, o], as the networks see them, and noise to samples of π(·|s), [N, …]."""
    actor, layers = agent.actor, arrays(layers_of(agent.actor))
    std = np.exp(numpy(actor.log_std)) if type(actor) is Gaussian else None

    @np.errstate(all="ignore")
    def act(seen: Tensor, noise: Tensor) -> Tensor:
        out, z = trace(layers, seen.numpy())[-1], noise.numpy()
        return torch.from_numpy((out + z).argmax(-1) if std is None else out + std * z)

    return act


@np.errstate(all="ignore")  # a diverged network is reported elsewhere, as with torch
def loss(
    agent: Any,
    obs: Tensor,
    action: Tensor,
    log_prob: Tensor,
    value: Tensor,
    target: Tensor,
    advantage: Tensor,
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """L = L_π + value_coef·L_V − entropy_coef·H on a minibatch [B], its φ(s) [B, d], and the parts of L."""
    cfg, actor, critic, n = agent.cfg, agent.actor, agent.critic, len(advantage)
    layers, critic_layers = layers_of(actor), layers_of(critic)
    weights, critic_weights = arrays(layers), arrays(critic_layers)
    seen, critic_seen = (trace(own, numpy(obs)) for own in (weights, critic_weights))

    policy = categorical if type(actor) is Categorical else gaussian
    now, entropy, backward = policy(actor, seen[-1], numpy(action))
    of_policy, g = policy_loss(now, numpy(log_prob), numpy(advantage), cfg.clip)
    of_value, error = value_loss(
        critic_seen[-1][:, 0], numpy(value), numpy(target), cfg.clip if cfg.clip_value else None
    )
    total = of_policy + cfg.value_coef * of_value - cfg.entropy_coef * entropy
    to_out, gradients = backward(g / n, cfg.entropy_coef)
    to_value = (error * (cfg.value_coef / n))[:, None]
    gradients += parameter_gradients(weights, seen, to_out)
    gradients += parameter_gradients(critic_weights, critic_seen, to_value)

    parameters = [*actor._parameters.values(), *flat(layers), *flat(critic_layers)]
    number, loss_policy, loss_value = torch.tensor([total, of_policy, of_value]).unbind()
    made = with_gradients(number, [torch.from_numpy(x) for x in gradients], parameters)
    # If the explorer learns, its loss is differentiated through φ, and autograd adds the two gradients.
    learns = len(agent.optimizer.parameters) > len(agent.weights)
    phi = critic.embed(obs) if learns else torch.from_numpy(critic_seen[-2])
    return made, phi, {"loss_policy": loss_policy, "loss_value": loss_value}


# The parts of the loss. At a tie beyond the bounds autograd halves the gradient, here it counts in full.


def policy_loss(log_prob: Array, old_log_prob: Array, advantage: Array, clip: float) -> tuple[float, Array]:
    """L_π = mean of −min(Âρ, Â·clip(ρ, 1 ± clip)), and B·∂L_π/∂log π [B]: −Âρ, or 0 where only the bound counts."""
    ratio = np.exp(log_prob - old_log_prob)
    gain, bounded = advantage * ratio, advantage * between(ratio, 1 - clip, 1 + clip)
    return -mean(np.minimum(gain, bounded)), -gain * (gain <= bounded)


def value_loss(value: Array, old_value: Array, target: Array, clip: float | None) -> tuple[float, Array]:
    """L_V = ½ mean of the larger square, and B·∂L_V/∂V [B]: the error V − G, or 0 where only the bound counts."""
    error = value - target
    squares = error * error
    if clip is not None:
        change = value - old_value
        bounded = between(change, -clip, clip)
        other = old_value + bounded - target
        other *= other
        error *= (squares >= other) | (bounded == change)
        squares = np.maximum(squares, other)
    return 0.5 * mean(squares), error


def gaussian(actor: Gaussian, out: Array, action: Array) -> tuple[Array, float, Backward]:
    """log π(a|s) = −½ Σ z² − Σ log σ − ½ dim·log 2π, z = (a − μ)/σ; its slope is z/σ by μ and z² − 1 by log σ. And H."""
    log_std = numpy(actor.log_std)
    inverse = np.exp(-log_std)
    z = (action - out) * inverse
    squares = z * z
    volume = float(np.add.reduce(log_std)) + 0.5 * actor.dim * math.log(2 * math.pi)

    def backward(g: Array, entropy_coef: float) -> tuple[Array, list[Array]]:
        return z * inverse * g[:, None], [g @ squares - np.add.reduce(g) - entropy_coef]

    return -0.5 * np.add.reduce(squares, -1) - volume, volume + 0.5 * actor.dim, backward


def categorical(actor: Categorical, out: Array, action: Array) -> tuple[Array, float, Backward]:
    """log π(a|s), its slope is 1[a] − π by the logits; and the mean of H(s), whose slope is −π(log π + H(s))."""
    shifted, rows = out - out.max(-1, keepdims=True), np.arange(len(out))
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    p = np.exp(log_p)
    entropy = -(p * log_p).sum(-1, keepdims=True)

    def backward(g: Array, entropy_coef: float) -> tuple[Array, list[Array]]:
        slope = p * (entropy_coef / len(p) * (log_p + entropy) - g[:, None])
        slope[rows, action] += g
        return slope, []

    return log_p[rows, action], mean(entropy), backward


# Networks and arrays.


def trace(layers: Arrays, x: Array) -> list[Array]:
    """x, h₁, …, hₙ, out: the input of each layer, [B, …], and the output of the last, [B, o]."""
    seen = [x]
    for weight, bias in layers:
        h = seen[-1] @ weight.T
        h += bias
        seen.append(h)
        if len(seen) <= len(layers):
            np.tanh(h, out=h)
    return seen


def parameter_gradients(layers: Arrays, seen: list[Array], g: Array) -> list[Array]:
    """∂L/∂W₁, ∂L/∂b₁, … from a trace and g = ∂L/∂out, [B, o]."""
    gradients: list[Array] = []
    for i in reversed(range(len(layers))):
        gradients += [np.add.reduce(g), g.T @ seen[i]]
        if i:
            g = g @ layers[i][0]
            g *= 1 - seen[i] * seen[i]  # the slope of tanh
    return gradients[::-1]


def arrays(layers: Any) -> Arrays:
    """The layers of a network as arrays that share their memory."""
    return [(numpy(weight), numpy(bias)) for weight, bias in layers]


def numpy(x: Tensor) -> Array:
    """A tensor as an array that shares its memory."""
    return x.numpy(force=True)


def between(x: Array, low: float, high: float) -> Array:
    """x clipped; `np.clip` takes three times as long."""
    return np.minimum(np.maximum(x, low), high)


def mean(x: Array) -> float:
    """The mean; `np.mean` takes three times as long."""
    return float(np.add.reduce(x, None)) / x.size
