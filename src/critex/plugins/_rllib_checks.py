"""Which RLlib configurations and explorers work together; all others are refused before anything is built."""

from __future__ import annotations

from typing import Any

from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.algorithms.impala.torch.impala_torch_learner import IMPALATorchLearner
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner

from critex.errors import UserError
from critex.explorers import Elliptical, explorer_class

REPLAY = DQNTorchLearner  # SAC's learner is a subclass
SUPPORTED = (PPOTorchLearner, IMPALATorchLearner, REPLAY)  # APPO's learner is a subclass of IMPALA's


def learner_of(config: Any) -> type:
    """The Learner class of the config, if it is one of those that take a bonus."""
    base = config._learner_class or config.get_default_learner_class()
    if not isinstance(base, type) or not issubclass(base, SUPPORTED):
        raise UserError(
            f"{type(config).__name__} is not supported; PPO, APPO, IMPALA, DQN and SAC with torch are"
        )
    return base


def check(config: Any, base: type, name: str, options: Any, rule: str) -> None:
    """Refuse configurations that would give wrong bonuses."""
    if config.is_multi_agent:
        raise UserError("critex.rllib supports a single agent")
    if getattr(config, "num_aggregator_actors_per_learner", 0):
        raise UserError(
            "aggregator actors make batches before the Learner; use num_aggregator_actors_per_learner=0"
        )
    if issubclass(base, REPLAY) and (n_step := getattr(config, "n_step", 1)) != 1:
        raise UserError(f"critex.rllib needs n_step=1, got {n_step}: the bonus belongs to one transition")
    if config.num_learners > 1 and not (issubclass(base, PPOTorchLearner) and name == "cae"):
        raise UserError(
            f"several Learners (num_learners={config.num_learners}) share a memory for PPO with explorer cae only; "
            "use one Learner and any number of env runners"
        )
    if rule and (issubclass(base, REPLAY) or config.num_learners > 1):
        raise UserError(
            f"alpha={rule!r} needs all episodes in one Learner; with a replay buffer or several Learners, give a number"
        )
    explorer = explorer_class(name)
    if not _episodic(explorer, options):
        return
    if issubclass(base, REPLAY):
        raise UserError(
            f"a replay buffer mixes episodes, so DQN and SAC need a memory that outlives them, and {name} has an episodic "
            'one with these options; use cae or counts with scope="lifelong", rnd, or icm'
        )
    resumable = issubclass(explorer, Elliptical) and not getattr(options, "thompson_hold", False)
    if config.batch_mode != "complete_episodes" and (config.num_learners > 1 or not resumable):
        raise UserError(
            f"the episodic memory of {name} needs whole episodes here: PPO with "
            'env_runners(batch_mode="complete_episodes")'
        )


def _episodic(explorer: Any, options: Any) -> bool:
    """Whether some state of the explorer belongs to one episode."""
    if parts := getattr(explorer, "explorers", ()):
        return any(map(_episodic, parts, options.parts()))
    flags = ("first_visit_only", "thompson_hold")
    return (
        explorer.episodic
        or getattr(options, "scope", "") == "episodic"
        or any(getattr(options, flag, False) for flag in flags)
    )
