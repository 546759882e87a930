"""φ of each kind of critic in Stable-Baselines3 and sb3-contrib: the input of its last linear layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from torch import Tensor, nn

from critex.data.tree import Tree, tree_map
from critex.embedding import Embedding
from critex.networks.hidden import last_hidden
from critex.plugins._common import flattened, scaled_actions, without_critic


def critic_embedding(model: Any, layer: str | None = None) -> Embedding:
    """φ of the model's critic, found by the critic's structure and not by the algorithm's name.

    `layer` names the linear layer of the critic's head whose input is φ; by default it is the last one.
    """
    actions = model.action_space
    if isinstance(model, OffPolicyAlgorithm):
        actions = scaled_actions(actions)
    try:
        trunk = _trunk(model.policy, layer)
    except NoPhi as reason:
        return without_critic(
            actions, f"{reason}, or use an explorer with its own encoder, such as e3b or rnd"
        )
    return Embedding.of(trunk.phi, trunk.dim, actions, takes_action=isinstance(trunk, TwinTrunk))


def _trunk(policy: Any, layer: str | None) -> QTrunk | TwinTrunk | ValueTrunk:
    net = getattr(policy, "q_net", None) or getattr(policy, "quantile_net", None)
    if hasattr(net, "q_net") or hasattr(net, "quantile_net"):
        return QTrunk(net, layer)
    if hasattr(getattr(policy, "critic", None), "q_networks"):
        return TwinTrunk(policy.critic, layer)
    if hasattr(policy, "mlp_extractor") and hasattr(policy, "value_net"):
        return ValueTrunk(policy, layer)
    raise NoPhi(f"critex.sb3 finds no critic in {type(policy).__name__}; derive it from a policy of SB3")


def critic_optimizer(model: Any) -> torch.optim.Optimizer:
    """The optimiser that trains the critic: its own, or the policy's."""
    critic = getattr(model.policy, "critic", None)
    optimizer = getattr(critic, "optimizer", None) or model.policy.optimizer
    assert isinstance(optimizer, torch.optim.Optimizer)
    return optimizer


class NoPhi(Exception):
    """Why a critic has no usable φ, and what would give it one."""


def below_output(head: nn.Module, layer: str | None) -> tuple[Callable[[Tensor], Tensor], int]:
    """What a critic's head computes up to the input of its last linear layer, or of `layer`; and that input's length."""
    if layer is None and isinstance(head, nn.Linear):
        return nn.Identity(), head.in_features
    if layer is None and isinstance(head, nn.Sequential) and isinstance(head[-1], nn.Linear):
        return head[:-1], head[-1].in_features
    if not any(isinstance(module, nn.Linear) for module in head.modules()):
        raise NoPhi("the critic's head has no nn.Linear, whose input would be φ; give it one")
    hidden = last_hidden(head, layer)
    return hidden, hidden.dim


class QTrunk(nn.Module):
    """DQN and QR-DQN, whose last layer has one output, or several quantiles, per action."""

    def __init__(self, net: Any, layer: str | None) -> None:
        super().__init__()
        self.net: Any = net
        head = net.q_net if hasattr(net, "q_net") else net.quantile_net
        self.trunk, self.dim = below_output(head, layer)

    def phi(self, obs: Tree) -> Tensor:
        """φ(s): [..., dim]."""
        return flattened(self._embed, obs, self.net.observation_space)

    def _embed(self, obs: Tree) -> Tensor:
        phi: Tensor = self.trunk(self.net.extract_features(obs, self.net.features_extractor))
        return phi


class TwinTrunk(nn.Module):
    """SAC, TD3, DDPG, TQC and CrossQ: the first of their critics."""

    def __init__(self, critic: Any, layer: str | None) -> None:
        super().__init__()
        self.critic: Any = critic
        self.trunk, self.dim = below_output(critic.q_networks[0], layer)

    def phi(self, obs: Tree, action: Tensor) -> Tensor:
        """φ(s,a): [..., dim]."""
        batch = action.shape[:-1]
        if len(batch) > 1:
            obs = tree_map(lambda x: x.flatten(0, len(batch) - 1), obs)
        features = self.critic.extract_features(obs, self.critic.features_extractor)
        if self.critic.share_features_extractor:  # then only the actor's loss trains it
            features = features.detach()
        phi: Tensor = self.trunk(torch.cat([features, action.flatten(0, -2).to(features.dtype)], dim=1))
        return phi.reshape(*batch, self.dim)


class ValueTrunk(nn.Module):
    """PPO, A2C, TRPO, MaskablePPO and RecurrentPPO; with an LSTM in the critic, the layers below it."""

    def __init__(self, policy: Any, layer: str | None) -> None:
        super().__init__()
        self.policy: Any = policy
        recurrent = hasattr(policy, "lstm_actor")
        self.below_lstm = recurrent and (policy.lstm_critic is not None or policy.shared_lstm)
        if not self.below_lstm:
            self.trunk, self.dim = below_output(policy.value_net, layer)
        elif any(True for _ in policy.vf_features_extractor.parameters()):
            self.dim = policy.features_dim
        else:
            raise NoPhi(
                "this policy has no layer below its LSTM, so its critic has no φ(s) of a single observation; give it "
                "a features extractor with layers, set policy_kwargs=dict(enable_critic_lstm=False)"
            )
        # Without an LSTM, RecurrentPPO's critic begins with its own linear layer.
        self.has_own_input = recurrent and not self.below_lstm

    def phi(self, obs: Tree) -> Tensor:
        """φ(s): [..., dim]."""
        return flattened(self._embed, obs, self.policy.observation_space)

    def _embed(self, obs: Tree) -> Tensor:
        features = self.policy.extract_features(obs)
        phi: Tensor = features if self.policy.share_features_extractor else features[1]
        if self.below_lstm:
            return phi
        if self.has_own_input:
            phi = self.policy.critic(phi)
        return self.trunk(self.policy.mlp_extractor.forward_critic(phi))
