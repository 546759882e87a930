"""The agent and the explorer of a run, as its newest checkpoint has them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from critex.cli import main
from critex.errors import UserError
from critex.run import Checkpoints
from critex.trained import load_trained


@pytest.mark.parametrize(
    "flags", ["dqn --learning-starts 50", "ppo --rollout 50 --minibatches 2 --num-envs 2"]
)
@pytest.mark.parametrize("explorer", ["none", "cae_plus", "rnd"])
def test_all_is_as_it_was_saved(flags: str, explorer: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    common = f"--env CartPole-v1 --steps 100 --explorer {explorer} --no-progress --no-tensorboard --out {run}"
    main(["train", *flags.split(), *common.split()])
    trained, parts = load_trained(run), Checkpoints(run).newest()["parts"]
    assert trained.step == 100
    for name in ("agent", "explorer"):
        stored, loaded = parts[name], getattr(trained, name).state_dict()
        assert stored.keys() == loaded.keys()
        tensors = [(stored[k], loaded[k]) for k in stored if isinstance(stored[k], torch.Tensor)]
        assert all(torch.equal(a, b) for a, b in tensors)
    assert trained.agent.policy(torch.zeros(3, 4)).shape == (3,)


def test_a_checkpoint_that_does_not_fit(tmp_path: Path) -> None:
    run = tmp_path / "run"
    main(
        [
            "train",
            *f"dqn --steps 20 --learning-starts 10 --hidden 8 --no-progress --no-tensorboard --out {run}".split(),
        ]
    )
    config = run / "config.toml"
    text = config.read_text()
    config.write_text(text.replace("hidden = [\n    8,\n]", "hidden = [\n    9,\n]"))
    assert config.read_text() != text
    with pytest.raises(UserError, match=r"does not fit the config of its run: agent: .*size mismatch"):
        load_trained(run)
