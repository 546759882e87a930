"""Workers of IMPALA as Ray actors: real kills, a node that disappears, a memory that all share, resume."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

pytest.importorskip("ray")

import ray

from critex.algorithms import impala
from critex.algorithms.impala import IMPALA, Config, make_worker
from critex.algorithms.ray_workers import Gain, RayWorkers, RemoteWorker, SharedMemory, difference, joined
from critex.bonus import WelfordScaler
from critex.errors import UserError
from critex.explorers import CAEPlusConfig, EllipticalConfig, RNDConfig
from critex.run import Run, to_dict
from tests.algorithms.conftest import QUIET, metrics

CPU = torch.device("cpu")
CART: dict[str, Any] = {"env": "CartPole-v1", "unroll": 20, "num_envs": 2, "hidden": (8,), **QUIET}


# --- sharing, without Ray ---


def test_moments_join_and_part() -> None:
    rng = torch.Generator().manual_seed(0)
    samples = [torch.rand(n, generator=rng, dtype=torch.float64) for n in (7, 5)]
    scalers = [WelfordScaler() for _ in range(3)]
    for scaler, sample in zip(scalers, [*samples, torch.cat(samples)], strict=True):
        scaler(sample)
    a, b, both = (scaler.moments for scaler in scalers)
    assert joined(a, b) == pytest.approx(both) and difference(both, a) == pytest.approx(b)
    nothing = [0.0, 0.0, 0.0]
    assert joined(a, nothing) == a == joined(nothing, a) and difference(a, a) == nothing


def test_a_lifelong_memory_is_the_sum_of_all_workers() -> None:
    """Two workers and a learner after five unrolls: each knows what both have seen, and nothing twice."""
    cfg = Config(explorer="cae", bonus=EllipticalConfig(), **CART)
    learner = make_worker(cfg, CPU).agent
    memory, workers = SharedMemory(learner.explorer), [RemoteWorker(to_dict(cfg), i) for i in range(2)]
    weights = {"network": learner.network.state_dict(), "explorer": {}, "updates": 0}
    news: list[Gain | None] = [None, None]
    rows = []
    for worker in (0, 1, 1, 0, 1):  # the second delivers twice before the first asks again
        unroll, gain = workers[worker].collect(weights, news[worker])
        before, news[worker] = news[1 - worker], None
        news[1 - worker] = memory.added(before, gain) if before else gain
        memory.merge(gain)
        phi = learner.explorer.phi(unroll.steps.obs, unroll.steps.action, None)
        rows.append(phi.detach().double().flatten(0, 1))
    psi = torch.cat(rows)
    everything = torch.eye(psi.shape[-1], dtype=torch.float64) + psi.T @ psi
    torch.testing.assert_close(learner.explorer.gram.matrix()[0], everything)
    assert news[0]
    workers[0].memory.merge(news[0])
    first = workers[0].worker.agent.explorer
    torch.testing.assert_close(first.gram.matrix()[0], everything)
    assert first.scaler.moments == pytest.approx(learner.explorer.scaler.moments)
    assert learner.explorer.scaler.moments[2] == len(psi)
    # a worker that begins now gets it all at once
    late = RemoteWorker(to_dict(cfg), 9)
    late.memory.merge(memory.everything())
    torch.testing.assert_close(late.worker.agent.explorer.gram.matrix()[0], everything)
    assert not late.memory.gain()[".gram"].abs().max() > 1e-9


def test_an_episodic_memory_stays_where_it_is() -> None:
    cfg = Config(explorer="cae", bonus=EllipticalConfig(scope="episodic", scaling="none"), **CART)
    memory = SharedMemory(make_worker(cfg, CPU).agent.explorer)
    assert not memory.grams and memory.everything() == {}


def test_workers_have_the_explorers_networks_and_levels_of_their_own() -> None:
    cfg = Config(explorer="rnd", bonus=RNDConfig(width=8), **CART)
    learner = make_worker(cfg, CPU).agent
    with torch.no_grad():
        for parameter in learner.explorer.parameters():
            parameter.fill_(0.5)  # the frozen target as well
    workers = [RemoteWorker(to_dict(cfg), i) for i in range(2)]
    weights = {
        "network": learner.network.state_dict(),
        "explorer": dict(learner.explorer.named_parameters()),
        "updates": 3,
    }
    unrolls = [worker.collect(weights, None)[0] for worker in workers]
    for worker in workers:
        assert all(bool((p == 0.5).all()) for p in worker.worker.agent.explorer.parameters())
    assert not torch.equal(unrolls[0].steps.obs[0], unrolls[1].steps.obs[0])
    assert unrolls[0].version == 3


def test_a_workers_warnings_travel_with_its_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody sees what a worker prints, so the learner gets its warnings, each once."""
    tiny = EllipticalConfig(ridge=1e9)  # every ‖φ‖² is small beside it
    worker = RemoteWorker(to_dict(Config(explorer="cae", bonus=tiny, **CART)), 0)
    learner = make_worker(Config(**CART), CPU).agent
    weights = {"network": learner.network.state_dict(), "explorer": {}, "updates": 0}
    sent = []
    for _ in range(7):
        worker.collect(weights, None)
        sent.append(worker.metrics()[1])
    assert [set(warnings) for warnings in sent] == [set()] * 4 + [{".features"}] + [set()] * 2
    assert "compared with λ = 1e+09" in sent[4][".features"] and not capsys.readouterr().err


def test_a_worker_computes_metrics_on_request_and_over_all_steps_since() -> None:
    cfg = Config(explorer="cae", bonus=EllipticalConfig(scaling="none"), **CART)
    worker = RemoteWorker(to_dict(cfg), 0)
    learner = make_worker(Config(**CART), CPU).agent
    weights = {"network": learner.network.state_dict(), "explorer": {}, "updates": 0}
    bonuses = torch.stack([worker.collect(weights, None)[0].steps.bonus for _ in range(3)])
    assert worker.metrics()[0]["bonus"] == pytest.approx(bonuses.mean().item())
    assert "bonus" not in worker.metrics()[0]


def test_a_worker_imports_the_module_of_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "worker_envs.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Own-v0', 'gymnasium.envs.classic_control.cartpole:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    cfg = Config(**{**CART, "env": "worker_envs:Own-v0"})
    assert RemoteWorker(to_dict(cfg), 0).worker.collect().steps.reward.shape == (20, 2)


def test_a_cluster_that_does_not_answer_is_refused_at_once() -> None:
    cfg = Config(**CART, workers=1, ray_address="127.0.0.1:1")
    with pytest.raises(UserError, match="no Ray cluster can be reached at 127.0.0.1:1"):
        RayWorkers(cfg, make_worker(cfg, CPU).agent)


# --- with Ray: a cluster of two nodes on this machine ---


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with room for one worker each, so that every start of a process is one that a test asks for."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Ray's default of 15 would starve the workers on a busy machine.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    ray.init(
        address=made.address, log_to_driver=False, logging_level="ERROR"
    )  # this process belongs to the head
    made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


def workers_of(path: Path, updates: list[Any], **options: Any) -> Path:
    """Train with workers, doing updates[i]() after update i."""
    cfg = Config(out=str(path), **{**CART, "log_every": 1, "workers": 2, **options})
    update = IMPALA.update
    calls: list[int] = []

    def watched(self: IMPALA, unroll: Any) -> Any:
        steps = unroll.steps
        assert steps.reward.shape == (20, 2) and unroll.log_prob.isfinite().all()
        # a whole unroll: each step begins where the last one ended
        inside = ~steps.ended[:-1]
        assert torch.equal(steps.obs[1:][inside], steps.next_obs[:-1][inside])
        losses = update(self, unroll)
        if len(calls) < len(updates) and updates[len(calls)]:
            updates[len(calls)]()
        calls.append(1)
        return losses

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IMPALA, "update", watched)
        with Run.create("impala", cfg) as run:
            impala.train(cfg, run)
    return path


def actor_processes() -> list[int]:
    """Process ids of the workers that this process started; other runs on this machine may have workers, too."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            worker = int(entry.parent.name)
            if (
                entry.read_bytes().startswith(b"ray::RemoteWorker")
                and _parent(_parent(worker)) == os.getpid()
            ):
                found.append(worker)  # a child of Ray's daemon, which is a child of this process
        except OSError:
            continue
    return found


def _parent(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])


@pytest.mark.slow
def test_killed_workers_are_replaced(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGKILL for all of them, one in the middle of an unroll: the run cannot go on without their replacements."""
    killed: list[int] = []

    def kill() -> None:
        killed.extend(actor_processes())
        for victim in killed:
            os.kill(victim, signal.SIGKILL)

    # With this λ each worker has reason for a warning; the learner prints it once.
    options = {"explorer": "cae", "bonus": EllipticalConfig(ridge=1e9), "steps": 16 * 40}
    path = workers_of(tmp_path / "run", [None] * 4 + [kill], **options)
    lines = [line for line in metrics(path) if line["kind"] == "train"]
    assert killed and len(lines) == 16 and lines[-1]["step"] == 640
    assert all(line.get("bonus", 1) > 0 and line["policy_lag"] >= 0 for line in lines)
    # A worker that died after it had delivered an unroll cannot be asked for the metrics of its explorer.
    assert sum("bonus" not in line for line in lines) <= len(killed)
    printed = capsys.readouterr().err
    assert (
        printed.count("another one takes its place") >= len(killed) and printed.count("compared with λ") == 1
    )


@pytest.mark.slow
def test_a_run_with_workers_goes_on_from_its_checkpoint(cluster: Any, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop() -> None:
        raise Stop

    bonus = CAEPlusConfig(u_dim=4)
    options = {
        "explorer": "cae_plus", "bonus": bonus, "steps": 12 * 40, "checkpoint_every": 1, "workers": 1,
    }  # fmt: skip
    with pytest.raises(Stop):
        workers_of(tmp_path / "run", [None] * 5 + [stop], **options)
    assert not [p for p in actor_processes() if _alive(p)]  # nobody is left behind
    cfg = Config(out=str(tmp_path / "run"), **{**CART, "log_every": 1, **options})
    with Run.open(tmp_path / "run", cfg) as run:
        impala.train(cfg, run)
    lines = [line for line in metrics(tmp_path / "run") if line["kind"] == "train"]
    assert [line["step"] for line in lines] == list(range(40, 481, 40))
    # A single worker never lags. Had it not taken up the checkpoint's number of updates, it would lag by at least five.
    assert {line["policy_lag"] for line in lines} == {0}


def _alive(process: int) -> bool:
    for _ in range(300):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.slow
def test_a_worker_that_cannot_work_is_an_error(cluster: Any, tmp_path: Path) -> None:
    """A mistake is reported as it is, and not repeated for ever."""
    cfg = Config(out=str(tmp_path / "run"), **{**CART, "workers": 1})
    workers = RayWorkers(cfg, make_worker(cfg, CPU).agent)
    workers.agent.network.actor.weight = torch.nn.Parameter(torch.zeros(5, 8))
    try:
        with pytest.raises(RuntimeError, match="size mismatch"):
            workers.collect()
    finally:
        workers.close()


@pytest.mark.slow
def test_a_worker_that_cannot_start_is_an_error(cluster: Any, tmp_path: Path) -> None:
    """An environment that only this process knows: a new worker would fail in the same way, again and again."""
    gym.register("OnlyHere-v0", "gymnasium.envs.classic_control.cartpole:CartPoleEnv")
    cfg = Config(out=str(tmp_path / "run"), **{**CART, "env": "OnlyHere-v0", "workers": 1})
    workers = RayWorkers(cfg, make_worker(cfg, CPU).agent)
    try:
        with pytest.raises(UserError, match="a worker did not start: there is no environment 'OnlyHere-v0'"):
            workers.collect()
    finally:
        workers.close()


@pytest.mark.slow
def test_a_node_that_disappears_is_survived(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Last, because the node does not come back: a worker on each of two nodes, one node removed in mid-run."""
    (node,) = (n for n in cluster.list_all_nodes() if not n.head)

    def remove() -> None:
        cluster.remove_node(node, allow_graceful=False)
        for _ in range(600):  # until the cluster has noticed; the other worker would be done by then
            if sum(n["Alive"] for n in ray.nodes()) == 1:
                return
            time.sleep(0.1)

    path = workers_of(tmp_path / "run", [None] * 4 + [remove], steps=30 * 40)
    lines = [line for line in metrics(path) if line["kind"] == "train"]
    assert len(lines) == 30 and lines[-1]["step"] == 1200
    assert "another one takes its place" in capsys.readouterr().err
