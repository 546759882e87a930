"""NovelD (Zhang et al., 2021): the step from the known to the new, paid once an episode.

β = max(0, n(s') − c·n(s)) · 1[N_ep(s') = 1],    n(x) = ‖p(g(x)) − t(g(x))‖₂,    L = mean of n(s')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from critex.data import Transition
from critex.errors import require_at_least
from critex.explorers.base import Setting
from critex.explorers.rival import Rival, RivalConfig, StateEncoder, frozen
from critex.explorers.rnd import Novelty
from critex.explorers.tally import Key, Tally
from critex.networks import mlp


@dataclass(frozen=True)
class NovelDConfig(RivalConfig):
    """Options of NovelD."""

    scaling: Literal["welford", "batch", "none"] = "welford"
    """Divide the bonus by its running standard deviation at collection (welford), by the batch moments of the
    learner (batch; algorithms that learn from rollouts only), or leave it (none)."""
    c: float = 0.1
    """How much of the old state's novelty is taken off (0.1 in E3B's comparison, 0.5 in the original)."""
    head: int = 128
    """Width of the last layers of p and t, and length of what they compare."""
    key: Key = "auto"
    """When two states of an episode are the same: position (where the env gives one), image, or obs, the whole
    observation as the agent sees it. auto: position where there is one, else obs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, c=0, head=1)


class NovelD(Rival):
    """g is a fixed random encoder; t has four layers; p, the only one to learn, five."""

    Config = NovelDConfig
    episodic = True

    def __init__(self, config: NovelDConfig, setting: Setting) -> None:
        super().__init__(config)
        self.config = config
        w, h = config.width, config.head
        self.trunk = frozen(StateEncoder(setting, w))
        predictor = nn.Sequential(mlp([w, w, w, h, h]), nn.Linear(h, h))
        target = nn.Sequential(mlp([w, h, h, h]), nn.Linear(h, h))
        self.novelty = Novelty(predictor, target).to(setting.embedding.device)
        self.tally = Tally(config.key, setting, episodic=True)

    def raw(self, steps: Transition) -> Tensor:
        old, new = self.novelty(self.trunk(steps.obs)), self.novelty(self.trunk(steps.next_obs))
        rise: Tensor = (new - self.config.c * old).clamp_min(0.0)
        return rise * (self.tally.visit(steps) == 1)

    def loss(self, batch: Transition, phi: Tensor | None = None) -> Tensor:
        loss: Tensor = self.novelty(self.trunk(batch.next_obs)).mean()
        return loss
