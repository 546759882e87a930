import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from critex.algorithms import load_config, ppo_recurrent
from critex.algorithms.ppo_recurrent import Config, RecurrentPPO, train
from critex.cli import main
from critex.envs import Envs
from critex.errors import UserError
from critex.explorers import explorer_class
from critex.run import Run, read_metrics, to_dict


class Recall(gym.Env[Any, Any]):
    """Shows a bit at the first step only; answering it at the fourth pays 1. Without memory: 0.5."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.bit, self.time = int(self.np_random.integers(2)), 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        end = self.time == 4
        return self._obs(), float(end and action == self.bit), end, False, {}

    def _obs(self) -> Any:
        return np.array([2.0 * self.bit - 1 if self.time == 0 else 0.0, self.time / 4], np.float32)


class Uneven(Recall):
    """Half of the episodes pay 1 at every step, and a time limit ends them at the fifth."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, end, _, info = super().step(action)
        return (obs, reward, end, False, info) if self.bit else (obs, 1.0, False, self.time == 5, info)


@pytest.fixture(autouse=True)
def recall() -> Any:
    gym.register("Recall-v0", Recall)
    gym.register("Uneven-v0", Uneven)
    yield
    del gym.registry["Recall-v0"], gym.registry["Uneven-v0"]


def config(out: Path, explorer: str = "none", **options: Any) -> Config:
    defaults: dict[str, Any] = {
        "env": "Recall-v0", "steps": 512, "num_envs": 4, "rollout": 16, "core_width": 16, "hidden": (16,), "log_every": 64,
        "progress": False, "tensorboard": False, "bonus": explorer_class(explorer).Config(),
    }  # fmt: skip
    return Config(out=str(out), explorer=explorer, **{**defaults, **options})


def metrics(cfg: Config) -> list[dict[str, Any]]:
    with Run.create("ppo_recurrent", cfg) as run:
        train(cfg, run)
    return [{k: v for k, v in line.items() if k not in ("time", "sps")} for line in read_metrics(cfg.out)]


def test_it_remembers(tmp_path: Path) -> None:
    """Recall cannot be solved above chance without a memory."""
    options = {"steps": 8_192, "num_envs": 16, "rollout": 32, "learning_rate": 4e-3, "max_grad_norm": 0.5}
    lines = metrics(config(tmp_path / "a", **options, core_width=32, hidden=(32,), normalize_advantage=True))
    last = [line["return"] for line in lines if line["kind"] == "episode"][-200:]
    assert np.mean(last) > 0.95


@pytest.mark.parametrize("explorer", ["cae", "cae_plus", "e3b", "rnd", "icm", "noveld"])
def test_it_trains_with_every_explorer(explorer: str, tmp_path: Path) -> None:
    lines = metrics(config(tmp_path / "a", explorer, steps=128))
    train_lines = [line for line in lines if line["kind"] == "train"]
    assert train_lines and all(np.isfinite(line["loss"]) and line["bonus"] > 0 for line in train_lines)


@pytest.mark.parametrize("explorer", ["e3b", "rnd", "icm", "noveld"])
def test_the_network_of_an_explorer_does_not_change_the_agent(explorer: str, tmp_path: Path) -> None:
    """With α = 0 the agent learns as without: the gradients of the two are clipped separately."""
    names = ("step", "return", "kl", "loss_policy", "loss_value", "entropy")
    alone, beside = (
        [{n: line[n] for n in names if n in line} for line in metrics(config(tmp_path / e, e, alpha=0.0))]
        for e in ("none", explorer)
    )
    assert alone == beside


@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_a_run_that_was_stopped_continues_identically(core: str, tmp_path: Path) -> None:
    whole = metrics(config(tmp_path / "a", "cae_plus", core=core, eval_every=192, eval_episodes=3))
    cfg = config(tmp_path / "b", "cae_plus", core=core, eval_every=192, eval_episodes=3, checkpoint_every=128)
    stopped = ppo_recurrent.RecurrentPPO.update
    calls = []

    def failing(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return stopped(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ppo_recurrent.RecurrentPPO, "update", failing)
        with pytest.raises(KeyboardInterrupt), Run.create("ppo_recurrent", cfg) as run:
            train(cfg, run)
    with Run.open(cfg.out, cfg) as run:
        train(cfg, run)
    resumed = [{k: v for k, v in line.items() if k not in ("time", "sps")} for line in read_metrics(cfg.out)]
    assert resumed == whole


def test_the_first_epoch_sees_the_policy_that_acted(tmp_path: Path) -> None:
    """Log-probabilities and values of whole sequences, recomputed, are those of acting: the ratio is 1."""
    cfg = config(tmp_path / "a", epochs=1, minibatches=1, learning_rate=0.0)
    lines = metrics(cfg)
    kl = [line["kl"] for line in lines if line["kind"] == "train"]
    assert kl and max(kl) < 1e-10


class StepByStep:
    """The update of recurrent PPO with CAE+, one environment and one step at a time, with torch's own Adam."""

    def __init__(self, agent: RecurrentPPO) -> None:
        self.cfg: Any = agent.cfg
        explorer: Any = agent.explorer
        self.net, self.U, self.inverse = copy.deepcopy((agent.net, explorer.U, explorer.inverse))
        learned = [*self.U.parameters(), *self.inverse.parameters()]
        self.groups = [list(self.net.parameters()), learned]
        adam = {"lr": self.cfg.learning_rate, "eps": 1e-5}
        self.optimizers = [torch.optim.Adam(group, **adam) for group in self.groups]

    def play(self, rollout: Any, previous: Tensor, begin: Any, env: int) -> tuple[Tensor, Tensor, Tensor]:
        """(φ [T + 1, d], logits [T + 1, A], values [T + 1]) of an environment; the last row is that after the rollout."""
        obs = torch.cat([rollout.obs[:, env], rollout.next_obs[-1:, env]])
        memory, before, rows = tuple(part[:, [env]] for part in begin), int(previous[0, env]), []
        for t in range(len(obs)):
            if t and rollout.ended[t - 1, env]:
                memory, before = tuple(map(torch.zeros_like, memory)), 0
            phi = self.net.trunk(obs[[t]])
            out, memory = self.net.core(
                torch.cat([phi, self.net.previous.weight[[before]]], -1)[None], memory
            )
            rows.append((phi[0], self.net.actor(out[0, 0]), self.net.critic(out[0, 0])[0]))
            before = int(rollout.action[t, env]) + 1 if t < len(rollout) else 0
        phi, logits, values = (torch.stack(column) for column in zip(*rows, strict=True))
        return phi, logits, values

    def update(self, rollout: Any, previous: Tensor, begin: Any, generator: torch.Generator) -> None:
        cfg, envs = self.cfg, range(self.cfg.num_envs)
        with torch.no_grad():
            old = [self.play(rollout, previous, begin, env)[1:] for env in envs]
        advantages = [self.advantage(rollout, env, old[env][1]) for env in envs]
        for _ in range(cfg.epochs):
            for chosen in torch.randperm(cfg.num_envs, generator=generator).chunk(cfg.minibatches):
                losses = [
                    self.loss(
                        rollout, env, *old[env], advantages[env], *self.play(rollout, previous, begin, env)
                    )
                    for env in chosen.tolist()
                ]
                for optimizer in self.optimizers:
                    optimizer.zero_grad()
                torch.cat(losses).mean().backward()
                for group, optimizer in zip(self.groups, self.optimizers, strict=True):
                    nn.utils.clip_grad_norm_(group, cfg.max_grad_norm)
                    optimizer.step()

    def advantage(self, rollout: Any, env: int, values: Tensor) -> Tensor:
        reward, rows, following = rollout.reward + self.cfg.alpha * rollout.bonus, [], torch.zeros(())
        for t in reversed(range(len(rollout))):
            alive = float(not rollout.ended[t, env])  # a time limit counts as the end
            delta = reward[t, env] + self.cfg.gamma * alive * values[t + 1] - values[t]
            following = delta + self.cfg.gamma * self.cfg.gae_lambda * alive * following
            rows.append(following)
        return torch.stack(rows[::-1])

    def loss(
        self,
        rollout: Any,
        env: int,
        old_logits: Tensor,
        old_values: Tensor,
        advantage: Tensor,
        phi: Tensor,
        logits: Tensor,
        values: Tensor,
    ) -> Tensor:
        """The loss of every step, [T]."""
        cfg, action, steps = self.cfg, rollout.action[:, env], len(rollout)
        before, now = (F.cross_entropy(x[:steps], action, reduction="none") for x in (old_logits, logits))
        ratio = (before - now).exp()
        policy = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - cfg.clip, 1 + cfg.clip))
        target = advantage + old_values[:steps]
        moved = old_values[:steps] + (values[:steps] - old_values[:steps]).clamp(-cfg.clip, cfg.clip)
        value = torch.max((values[:steps] - target) ** 2, (moved - target) ** 2) / 2
        entropy = torch.distributions.Categorical(logits=logits[:steps]).entropy()
        pair = torch.cat([self.U(phi[:steps]), self.U(self.net.trunk(rollout.next_obs[:, env]))], -1)
        guess = self.inverse.head(self.inverse.body(pair).relu())
        inverse = F.cross_entropy(guess, action, reduction="none")
        return policy + cfg.value_coef * value - cfg.entropy_coef * entropy + inverse


def test_updates_equal_those_of_one_environment_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = config(
        tmp_path / "a", "cae_plus", env="Uneven-v0", steps=4 * 7 * 3, rollout=7, alpha=0.5, learning_rate=1e-2
    )
    update, references, ends = RecurrentPPO.update, [], []

    def compared(agent: RecurrentPPO, rollout: Any, columns: Any, begin: Any, last_value: Tensor) -> Any:
        reference = references[0] if references else StepByStep(agent)
        references.append(reference)
        ends.append((rollout.terminated.any(), rollout.truncated.any(), not rollout.episode_start[0].all()))
        generator = torch.Generator()
        generator.set_state(agent.generator.get_state())
        reference.update(rollout, columns["previous"], begin, generator)
        losses = update(agent, rollout, columns, begin, last_value)
        for ours, theirs in zip(agent.net.parameters(), reference.groups[0], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        return losses

    monkeypatch.setattr(RecurrentPPO, "update", compared)
    metrics(cfg)
    assert len(references) == 3 and all(any(kind) for kind in zip(*ends, strict=True))


def test_evaluation_has_a_memory_of_its_own() -> None:
    envs = Envs("Recall-v0", 4)
    cfg = Config(env="Recall-v0", num_envs=4, sample_actions=False)
    agent = RecurrentPPO(cfg, envs.observation_space, envs.action_space, torch.device("cpu"))
    agent.act(envs.obs)
    before = [part.clone() for part in agent.memory]
    played, policy = Envs("Recall-v0", 3), agent.policy
    for _ in range(4):
        step, _ = played.step(policy(played.obs))
        policy.restart(step.ended)
    assert step.ended.all()
    assert all(torch.equal(a, b) for a, b in zip(before, agent.memory, strict=True))
    # a fresh episode: what was remembered of the one before plays no part
    assert torch.equal(policy(played.obs), agent.policy(played.obs))


def test_bad_options_are_one_line() -> None:
    with pytest.raises(UserError, match="3 environments do not split into 2 .* --minibatches 1 would"):
        Config(num_envs=3)
    with pytest.raises(UserError, match="less than one rollout of 1024"):
        Config(steps=100)
    with pytest.raises(UserError, match="bonus_in=reward"):
        Config(recompute=True)
    with pytest.raises(UserError, match="advantages of one step cannot be normalised"):
        Config(rollout=1, num_envs=2, minibatches=2, normalize_advantage=True)
    envs = Envs("Pendulum-v1", 1)
    with pytest.raises(UserError, match="needs discrete actions"):
        RecurrentPPO(Config(), envs.observation_space, envs.action_space, torch.device("cpu"))


class Measured(Recall):
    """The same without reward, and with a measure of each episode."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, _, end, _, _ = super().step(action)
        return obs, 0.0, end, False, {"measures": {"coverage": 0.25}} if end else {}


def test_eval_plays_the_evaluation_env_and_prints_its_measures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong, message in (("Mesured-v0", "Mesured"), ("Pendulum-v1", "observation space")):
        bad = config(tmp_path / wrong, steps=64, eval_env=wrong)
        with pytest.raises(UserError, match=message), Run.create("ppo_recurrent", bad) as run:
            train(bad, run)
    cfg = config(tmp_path / "run", steps=64, eval_env="Measured-v0")
    gym.register("Measured-v0", Measured)
    try:
        with Run.create("ppo_recurrent", cfg) as run:
            train(cfg, run)
        main(["eval", cfg.out, "--episodes", "2"])
    finally:
        del gym.registry["Measured-v0"]
    assert "return 0 ± 0, coverage 0.25 ± 0 over 2 episodes" in capsys.readouterr().out


def test_a_run_whose_evaluation_env_would_import_a_module_is_refused(tmp_path: Path) -> None:
    data = to_dict(config(tmp_path / "run", eval_env="evil:Mine-v0"))
    with pytest.raises(UserError, match="asks to import the Python module 'evil'"):
        load_config("ppo_recurrent", data)
