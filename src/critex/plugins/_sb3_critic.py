"""φ of each kind of critic in Stable-Baselines3 and sb3-contrib: the input of its last linear layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from critex.data.tree import Tree, tree_map
from critex.embedding import Embedding
from critex.errors import UserError
from critex.plugins._common import flattened, scaled_actions, without_critic


def critic_embedding(model: Any) -> Embedding:
    """φ of the model's critic, found by the critic's structure and not by the algorithm's name."""
    policy, actions = model.policy, model.action_space
    if q_net := getattr(policy, "q_net", None) or getattr(policy, "quantile_net", None):
        q = QTrunk(q_net)
        return Embedding.of(q.phi, q.dim, actions, takes_action=False)
    if hasattr(getattr(policy, "critic", None), "q_networks"):
        twin = TwinTrunk(policy.critic)
        return Embedding.of(twin.phi, twin.dim, scaled_actions(actions), takes_action=True)
    if hasattr(policy, "mlp_extractor") and hasattr(policy, "value_net"):
        value = ValueTrunk(policy)
        if value.dim == 0:
            return without_critic(
                actions,
                "this policy has no layer below its LSTM, so its critic has no φ(s) of a single observation; give it "
                "a features extractor with layers, set policy_kwargs=dict(enable_critic_lstm=False), or use an "
                "explorer with its own encoder, such as e3b or rnd",
            )
        return Embedding.of(value.phi, value.dim, actions, takes_action=False)
    raise UserError(
        f"critex.sb3 finds no critic in {type(policy).__name__}; it knows DQN, SAC, TD3, DDPG, PPO and A2C, and QR-DQN, "
        "TQC and RecurrentPPO of sb3-contrib"
    )


def critic_optimizer(model: Any) -> torch.optim.Optimizer:
    """The optimiser that trains the critic: its own, or the policy's."""
    critic = getattr(model.policy, "critic", None)
    optimizer = getattr(critic, "optimizer", None) or model.policy.optimizer
    assert isinstance(optimizer, torch.optim.Optimizer)
    return optimizer


class QTrunk(nn.Module):
    """DQN and QR-DQN, whose last layer has one output, or several quantiles, per action."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net: Any = net
        layers = net.q_net if hasattr(net, "q_net") else net.quantile_net
        self.trunk, self.dim = layers[:-1], layers[-1].in_features

    def phi(self, obs: Tree) -> Tensor:
        """φ(s): [..., dim]."""
        return flattened(self._embed, obs, self.net.observation_space)

    def _embed(self, obs: Tree) -> Tensor:
        phi: Tensor = self.trunk(self.net.extract_features(obs, self.net.features_extractor))
        return phi


class TwinTrunk(nn.Module):
    """SAC, TD3, DDPG and TQC: the first of their critics."""

    def __init__(self, critic: Any) -> None:
        super().__init__()
        self.critic: Any = critic
        self.trunk, self.dim = critic.q_networks[0][:-1], critic.q_networks[0][-1].in_features

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
    """PPO, A2C and RecurrentPPO; with an LSTM in the critic, the layers below it (dim = 0: there are none)."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.policy: Any = policy
        recurrent = hasattr(policy, "lstm_actor")
        self.dim: int = policy.value_net.in_features
        self.below_lstm = recurrent and (policy.lstm_critic is not None or policy.shared_lstm)
        if self.below_lstm:
            has_layers = any(True for _ in policy.vf_features_extractor.parameters())
            self.dim = policy.features_dim if has_layers else 0
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
        value: Tensor = self.policy.mlp_extractor.forward_critic(phi)
        return value
