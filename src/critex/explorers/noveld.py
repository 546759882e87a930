"""NovelD (Zhang et al., 2021): the bonus is the rise in novelty from s to s', for the first visit in an episode.

β = max(0, n(s') − c·n(s)) · 1[N_ep(s') = 1],    n(x) = ‖p(g(x)) − t(g(x))‖₂,    L = mean of n(s')
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from critex.data import Transition
from critex.explorers._encoder import EncoderConfig, StateEncoder, frozen
from critex.explorers._visit_counts import EpisodicCountConfig, VisitCounts
from critex.explorers.base import Setting
from critex.explorers.rnd import Novelty
from critex.explorers.scaling import ScaledExplorer, Scaling
from critex.networks import mlp
from critex.ranges import Count, NonNegative


@dataclass(frozen=True)
class NovelDConfig(EpisodicCountConfig, EncoderConfig):
    """Options of NovelD."""

    scaling: Scaling = "welford"
    c: NonNegative = 0.1
    """Fraction of the novelty of s to subtract (0.1 in E3B's comparison, 0.5 in the original)."""
    head: Count = 128
    """Width of the last layers of p and t, and length of their outputs."""
    first_visit_only: bool = True
    """Pay only for the first visit in an episode: the factor 1[N_ep(s') = 1]. In a product with an episodic bonus,
    such as e3b*noveld, the other factor can play this role."""


class NovelD(ScaledExplorer):
    """g is a fixed random encoder, t has four random layers, and p, the only part that learns, has five."""

    Config = NovelDConfig

    def __init__(self, config: NovelDConfig, setting: Setting) -> None:
        super().__init__(config)
        self.config = config
        self.episodic = config.first_visit_only
        w, h = config.width, config.head
        self.trunk = frozen(StateEncoder(setting, w))
        predictor = nn.Sequential(mlp([w, w, w, h, h]), nn.Linear(h, h))
        target = nn.Sequential(mlp([w, h, h, h]), nn.Linear(h, h))
        self.novelty = Novelty(predictor, target).to(setting.embedding.device)
        self.tally = VisitCounts(config.key, setting, episodic=True, count_start=config.count_start)

    def raw(self, steps: Transition) -> Tensor:
        old, new = self.novelty(self.trunk(steps.obs)), self.novelty(self.trunk(steps.next_obs))
        rise: Tensor = (new - self.config.c * old).clamp_min(0.0)
        return rise * (self.tally.visit(steps) == 1) if self.config.first_visit_only else rise

    def loss(self, batch: Transition, phi: Tensor | None = None) -> Tensor:
        loss: Tensor = self.novelty(self.trunk(batch.next_obs)).mean()
        return loss
