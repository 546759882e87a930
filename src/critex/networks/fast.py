"""Hand-written gradients of plain Linear+ReLU networks: autograd's numbers without its overhead.

`@faster` lets a function of this module replace a loss of an algorithm:

    @faster(twin_critic_loss, q1=Critic, q2=Critic)
    def critic_loss(self, obs, action, y): ...

The function runs if the option `fast` is set and the named networks are the algorithm's plain ones. If one of them was
changed (another class, activation, encoder or LayerNorm, a hook, a frozen parameter), or if the agent is of a subclass,
the original loss runs. Either way the caller gets a loss that autograd can differentiate with respect to the networks'
parameters.

The losses of SAC and TD3 follow; PPO's, for Linear+Tanh networks, is in `fast_ppo`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import repeat
from operator import is_
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from critex.data.tree import Tree
from critex.networks.flatten import Flatten
from critex.networks.policies import Trunk

Layers: TypeAlias = Sequence[tuple[Tensor, Tensor]]  # weight and bias; a ReLU after every layer but the last
Kinds: TypeAlias = type[nn.Module] | tuple[type[nn.Module], ...]
Method = TypeVar("Method", bound=Callable[..., Any])

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
METHODS = {"forward", "embed", "sample", "log_prob", "entropy"}
"""What a network may not have of its own, because the functions here write it out."""


def faster(
    quick: Callable[..., Any], activation: type[nn.Module] = nn.ReLU, device: str = "", **networks: Kinds
) -> Callable[[Method], Method]:
    """Decorator of an agent's method: run `quick` instead if `cfg.fast` is set and the networks are plain.

    `device` is the only type of device that `quick` supports, if it does not support all.
    """

    def decorate(method: Method) -> Method:
        @wraps(method)
        def choose(agent: Any, *args: Any, **named: Any) -> Any:
            # A subclass may have changed anything.
            own_class = vars(type(agent)).get(method.__name__) is choose
            applies = own_class and agent.cfg.fast and device in ("", agent.device.type)
            applies = applies and all(is_plain(getattr(agent, k), c, activation) for k, c in networks.items())
            return (quick if applies else method)(agent, *args, **named)

        return choose  # type: ignore[return-value]

    return decorate


def is_plain(network: Any, kinds: Kinds, activation: type[nn.Module] = nn.ReLU) -> bool:
    """Whether a network is exactly one of `kinds` on vectors, unmodified: Linear, activation, …, and a linear head."""
    if type(network) not in (kinds if isinstance(kinds, tuple) else (kinds,)):
        return False
    trunk, encode, body, head = _parts(network)
    if type(encode) is not Flatten or type(body) is not nn.Sequential:
        return False
    hidden = [*body._modules.values()]
    linears, activations = [*hidden[::2], head], hidden[1::2]
    return (
        (trunk is network or type(trunk) is Trunk)
        and len(hidden) == 2 * len(activations)
        and all(type(m) is activation for m in activations)
        and all(type(m) is nn.Linear and m.bias is not None for m in linears)
        and all(p.requires_grad for m in (*linears, network) for p in m._parameters.values())
        and not any(_changed(m.__dict__) for m in (network, trunk, encode, body, *hidden, head))
    )


def _parts(network: Any) -> tuple[Any, Any, Any, Any]:
    """The trunk (else the network itself), with its encoder and hidden layers, and the head."""
    trunk = network._modules.get("trunk", network)
    return trunk, trunk._modules.get("encode"), trunk._modules.get("body"), network._modules.get("head")


def _changed(own: dict[str, Any]) -> bool:
    """Whether a module with these attributes has a hook, or a method of its own."""
    return any(map(own.get, HOOKS, repeat(True))) or not METHODS.isdisjoint(own)


def layers_of(network: Any) -> Layers:
    """The layers of a plain network."""
    _, _, body, head = _parts(network)
    return [(m.weight, m.bias) for m in (*list(body)[::2], head)]


# The losses.


@torch.no_grad()
def twin_critic_loss(agent: Any, obs: Tree, action: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """L = mean (Q₁ − y)² + mean (Q₂ − y)², and Q₁ [B]."""
    x = torch.cat([agent.q1.encode(obs), action], dim=-1)
    q, losses, gradients, parameters = [], [], [], []
    for critic in (agent.q1, agent.q2):
        layers = layers_of(critic)
        seen = trace(layers, x)
        q.append(seen[-1].squeeze(-1))
        error = q[-1] - y
        losses.append(error.dot(error) / len(y))
        gradients += parameter_gradients(layers, seen, (2 / len(y) * error).unsqueeze(-1))
        parameters += flat(layers)
    return with_gradients(torch.stack(losses).sum(), gradients, parameters), q[0]


@torch.no_grad()
def deterministic_actor_loss(agent: Any, obs: Tree) -> Tensor:
    """Mean of −Q₁(s, μ(s)), for an actor μ = scale·tanh(out) + centre."""
    actor, layers = agent.actor, layers_of(agent.actor)
    seen = trace(layers, actor.encode(obs))
    squashed = seen[-1].tanh()
    q, slope = min_q((agent.q1,), obs, torch.addcmul(actor.centre, squashed, actor.scale))
    g = slope * actor.scale * (1 - squashed.square()) / -len(q)
    return with_gradients(-q.mean(), parameter_gradients(layers, seen, g), flat(layers))


@torch.no_grad()
def soft_actor_loss(agent: Any, obs: Tree) -> Tensor:
    """Mean of η·log π(a|s) − min Q(s,a), a ~ π(s), with the temperature η; see `sac.Actor` for the formulas of π."""
    actor, layers = agent.actor, layers_of(agent.actor)
    seen = _known_pass(actor, layers, obs) or trace(layers, actor.encode(obs))
    mean, raw = seen[-1].chunk(2, dim=-1)
    raw = raw.tanh()
    log_std = actor.log_std_centre + actor.log_std_scale * raw
    z = torch.randn_like(mean)
    spread = log_std.exp().mul_(z)  # σz
    t = (mean + spread).tanh_()
    slope = torch.addcmul(actor.scale, actor.scale, t.square(), value=-1)  # da/du = scale·(1 − t²)
    width = slope + 1e-6
    terms = log_std.add_(z.square_(), alpha=0.5).add_(width.log())
    log_prob = -(terms.sum(-1) + 0.5 * math.log(2 * math.pi) * len(actor.scale))

    q, q_slope = min_q((agent.q1, agent.q2), obs, torch.addcmul(actor.centre, t, actor.scale))
    coef = agent.log_entropy_coef.exp()
    loss = (coef * log_prob - q).mean()
    to_log_prob = (coef / len(q)).expand_as(q).unsqueeze(-1)
    to_u = slope * (q_slope / -len(q) + to_log_prob * 2 * t / width)
    to_log_std = to_u * spread - to_log_prob
    g = torch.cat([to_u, to_log_std * actor.log_std_scale * (1 - raw.square())], dim=-1)
    return with_gradients(loss, parameter_gradients(layers, seen, g), flat(layers))


@torch.no_grad()
def temperature_loss(agent: Any, obs: Tree) -> Tensor:
    """−η·(mean log π(a|s) + H̄), a ~ π(s). The next `soft_actor_loss` on these observations reuses its pass."""
    actor, layers = agent.actor, layers_of(agent.actor)
    seen = trace(layers, actor.encode(obs))
    _passes[actor] = obs, _versions(layers), seen
    surplus = actor.sample(*actor.split(seen[-1]))[1].mean() + agent.target_entropy
    loss = -agent.log_entropy_coef.exp() * surplus
    return with_gradients(loss, [loss], [agent.log_entropy_coef])


@torch.no_grad()
def min_q(critics: tuple[Any, ...], obs: Tree, action: Tensor) -> tuple[Tensor, Tensor]:
    """min Q(s,a) over the critics, [B], and ∂ min Q/∂a, [B, a]: each row uses only the critic that is smallest there."""
    x, columns = torch.cat([critics[0].encode(obs), action], dim=-1), slice(-action.shape[-1], None)
    layers = [layers_of(critic) for critic in critics]
    seen = [trace(own, x) for own in layers]
    if len(critics) == 1:
        return seen[0][-1].squeeze(-1), input_gradient(layers[0], seen[0], columns)
    q, chosen = torch.cat([s[-1] for s in seen], dim=-1).min(-1)
    slope = torch.empty_like(action)
    for i, own in enumerate(layers):
        rows = (chosen == i).nonzero().squeeze(-1)
        slope.index_copy_(0, rows, input_gradient(own, seen[i], columns, rows))
    return q, slope


# A pass over the actor that two losses share: the observations, the state of the weights, the trace.

_passes: WeakKeyDictionary[nn.Module, tuple[Tree, list[int], list[Tensor]]] = WeakKeyDictionary()


def _known_pass(actor: nn.Module, layers: Layers, obs: Tree) -> list[Tensor] | None:
    """The trace of the last pass, if the observations and the weights are still the same. It is given out once."""
    last_obs, versions, seen = _passes.pop(actor, (None, [], []))
    return seen if last_obs is obs and versions == _versions(layers) else None


def _versions(layers: Layers) -> list[int]:
    """PyTorch's counters of in-place changes: every optimiser step and every loaded checkpoint moves them."""
    return [tensor._version for tensor in flat(layers)]


# Backpropagation; call these under `no_grad`.


def trace(layers: Layers, x: Tensor) -> list[Tensor]:
    """x, h₁, …, hₙ, out: the input of each layer, [B, …], and the output of the last, [B, o]."""
    seen = [x]
    for weight, bias in layers[:-1]:
        seen.append(F.linear(seen[-1], weight, bias).relu_())
    return [*seen, F.linear(seen[-1], *layers[-1])]


def parameter_gradients(layers: Layers, seen: list[Tensor], g: Tensor) -> list[Tensor]:
    """∂L/∂W₁, ∂L/∂b₁, … from a trace and g = ∂L/∂out, [B, o]. The trace is overwritten."""
    gradients: list[Tensor] = []
    for i in reversed(range(len(layers))):
        # gᵀh; where that has few columns, BLAS is faster with hᵀg, which has few rows
        narrow = seen[i].shape[1] < g.shape[1]
        gradients += [g.sum(0), (seen[i].t() @ g).t() if narrow else g.t() @ seen[i]]
        if i:
            g = (g @ layers[i][0]).mul_(seen[i].sign_())  # the slope of a ReLU that returned h ≥ 0 is sign h
    return gradients[::-1]


def input_gradient(layers: Layers, seen: list[Tensor], columns: slice, rows: Tensor | None = None) -> Tensor:
    """∂out/∂x of a network with one output, for these columns of x and, if given, these rows. Overwrites the trace."""
    g = layers[-1][0]
    for i in reversed(range(len(layers) - 1)):
        h = seen[i + 1] if rows is None else seen[i + 1].index_select(0, rows)
        g = h.sign_().mul_(g)
        g = g @ layers[i][0] if i else (layers[0][0][:, columns].t() @ g.t()).t()  # few rows, not few columns
    return g


def with_gradients(loss: Tensor, gradients: list[Tensor], parameters: list[Tensor]) -> Tensor:
    """The loss as autograd would have made it, given its gradient with respect to each parameter."""
    with torch.enable_grad():
        made: Tensor = _Known.apply(loss, gradients, *parameters)  # type: ignore[no-untyped-call]
    return made


def known_gradients(loss: Tensor, parameters: Sequence[Tensor]) -> Sequence[Tensor] | None:
    """The gradients of a loss of this module, also after a constant was added to it; None for any other loss.

    It saves a pass through autograd's engine, which would return just these.
    """
    node = loss.grad_fn
    if node is not None and node.name() == "AddBackward0" and node.next_functions[1][0] is None:
        node = node.next_functions[0][0]
    known: Sequence[Tensor] = getattr(node, "parameters", ())
    same = len(known) == len(parameters) and all(map(is_, known, parameters))
    if not same or loss._backward_hooks or any(p._backward_hooks for p in parameters):
        return None
    return node.gradients  # type: ignore[union-attr, no-any-return]


class _Known(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: list[Tensor], *parameters: Tensor) -> Tensor:
        ctx.gradients, ctx.parameters = gradients, parameters
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        factor = float(outer[0])
        return None, None, *(g if factor == 1.0 else factor * g for g in ctx.gradients)


def flat(layers: Layers) -> list[Tensor]:
    """The weights and biases in one list."""
    return [tensor for layer in layers for tensor in layer]
