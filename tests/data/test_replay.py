from pathlib import Path

import pytest
import torch

from critex.data import Replay, Transition, tree_leaves
from critex.data.files import Damaged
from critex.errors import UserError


def step(first: int, n: int = 1) -> Transition:
    """N rows that can be told apart: the reward of row g is g."""
    g = torch.arange(first, first + n)
    return Transition(
        obs={
            "image": g.to(torch.uint8).reshape(n, 1, 1).expand(n, 2, 2),
            "vector": g[:, None] + torch.rand(n, 3),
        },
        action=g % 5,
        reward=g.float(),
        next_obs={
            "image": (g + 1).to(torch.uint8).reshape(n, 1, 1).expand(n, 2, 2),
            "vector": torch.rand(n, 3),
        },
        terminated=g % 3 == 0,
        truncated=g % 7 == 0,
        episode_start=g % 3 == 1,
        bonus=-g.float(),
        info={"position": torch.stack([g, g * g], dim=1), "other": g},
    )


def fill(replay: Replay, rows: int, n: int = 1) -> None:
    for first in range(replay.total, rows, n):
        replay.add(step(first, min(n, rows - first)))


def same(a: Transition, b: Transition) -> bool:
    pairs = zip(tree_leaves(a.asdict()), tree_leaves(b.asdict()), strict=True)
    return all(x.dtype == y.dtype and torch.equal(x, y) for x, y in pairs)


def test_default_bonus_is_zero_and_map_reaches_everything() -> None:
    transition = step(3, 4)
    plain = transition.asdict()
    del plain["bonus"]
    assert Transition(**plain).bonus.tolist() == [0.0] * 4
    assert len(transition.leaves()) == 12  # 2 + 1 + 1 + 2 + 3 flags + bonus + 2 of info
    assert all(len(leaf) == 2 for leaf in transition.map(lambda x: x[:2]).leaves())
    assert transition.ended.tolist() == [True, False, False, True]  # rows 3 … 6


@pytest.mark.parametrize("n", [1, 3, 4])
@pytest.mark.parametrize("rows", [1, 9, 10, 11, 27])
def test_the_ring_holds_the_newest_rows_in_order(n: int, rows: int) -> None:
    replay = Replay(10)
    fill(replay, rows, n)
    expected = list(range(max(rows - 10, 0), rows))
    assert (len(replay), replay.total) == (min(rows, 10), rows)
    assert replay.all().reward.tolist() == expected
    assert replay.last(4).reward.tolist() == expected[-4:]


def test_rows_stay_together_and_keep_their_dtypes() -> None:
    replay = Replay(50)
    fill(replay, 70, 4)
    batch = replay.sample(64)
    g = batch.reward.long()
    assert batch.obs["image"].dtype == torch.uint8 and batch.obs["image"].shape == (64, 2, 2)
    assert torch.equal(batch.obs["image"][:, 0, 0].long(), g)
    assert torch.equal(batch.next_obs["image"][:, 1, 1].long(), g + 1)
    assert torch.equal(batch.obs["vector"].floor().long(), g[:, None].expand(64, 3))
    assert torch.equal(batch.action, g % 5) and torch.equal(batch.bonus, -batch.reward)
    assert batch.terminated.dtype == torch.bool and torch.equal(batch.terminated, g % 3 == 0)
    assert torch.equal(batch.truncated, g % 7 == 0) and torch.equal(batch.episode_start, g % 3 == 1)
    assert not batch.info


def test_sampling_is_uniform_seeded_and_leaves_the_global_generator_alone() -> None:
    a, b, c = Replay(20, seed=1), Replay(20, seed=1), Replay(20, seed=2)
    for replay in (a, b, c):
        fill(replay, 33)
    before = torch.get_rng_state()
    drawn = a.sample(40_000).reward
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(b.sample(40_000).reward, drawn)
    assert not torch.equal(c.sample(40_000).reward, drawn)
    counts = torch.bincount(drawn.long(), minlength=33)
    assert counts[:13].sum() == 0  # overwritten
    # 20 cells of 2000 ± √(40000·0.05·0.95) = 44: five standard deviations
    assert (counts[13:] - 2000).abs().max() < 220


def test_the_buffer_keeps_copies() -> None:
    replay, transition = Replay(4), step(1)
    replay.add(transition)
    transition.reward += 100
    batch = replay.sample(3)
    batch.reward += 100
    assert replay.all().reward.tolist() == [1.0]


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="capacity"):
        Replay(0)
    with pytest.raises(ValueError, match="chunk"):
        Replay(5, chunk=6)
    with pytest.raises(ValueError, match="empty"):
        Replay(5).sample(1)
    with pytest.raises(ValueError, match="buffer_size of at least 3"):
        Replay(2).add(step(0, 3))


# Checkpoints


def save(replay: Replay, directory: Path) -> None:
    replay.save_chunks(directory)
    torch.save(replay.state_dict(), directory.parent / "state.pt")


def load(directory: Path, **kwargs: int) -> Replay:
    replay = Replay(**kwargs, seed=99)
    replay.load_state_dict(torch.load(directory.parent / "state.pt", weights_only=True))
    replay.load_chunks(directory)
    return replay


@pytest.mark.parametrize("capacity, chunk", [(40, 10), (40, 7), (40, 40), (9, 1)])
@pytest.mark.parametrize("rows", [0, 5, 40, 41, 95])
@pytest.mark.parametrize("every", [7, 1000])
def test_restored_exactly(tmp_path: Path, capacity: int, chunk: int, rows: int, every: int) -> None:
    replay = Replay(capacity, seed=5, chunk=chunk)
    for until in [*range(0, rows, every), rows]:
        fill(replay, until)
        save(replay, tmp_path / "replay")
        if until:
            replay.sample(3)  # moves the generator
    save(replay, tmp_path / "replay")
    restored = load(tmp_path / "replay", capacity=capacity, chunk=chunk)
    assert (restored.total, len(restored)) == (replay.total, len(replay))
    if rows:
        assert same(restored.all(), replay.all())
        assert same(restored.sample(100), replay.sample(100))
    both = (replay, restored)
    for other in both:
        torch.manual_seed(0)
        fill(other, rows + 30)
    assert same(restored.all(), replay.all()) and same(restored.sample(9), replay.sample(9))


def test_a_chunk_is_written_once_and_the_state_is_small(tmp_path: Path) -> None:
    replay = Replay(100, chunk=10)
    fill(replay, 47)
    replay.save_chunks(tmp_path)
    files = sorted(tmp_path.iterdir())
    written = [file.stat().st_mtime_ns for file in files]
    assert len(files) == 4
    assert len(replay.state_dict()["tail"]["reward"]) == 7
    fill(replay, 55)
    replay.save_chunks(tmp_path)
    assert [file.stat().st_mtime_ns for file in files] == written
    assert len(list(tmp_path.iterdir())) == 5


def test_files_of_a_lost_stretch_are_not_trusted(tmp_path: Path) -> None:
    replay = Replay(100, chunk=10)
    fill(replay, 25)
    save(replay, tmp_path / "replay")
    fill(replay, 48)
    replay.save_chunks(tmp_path / "replay")  # killed here, before the checkpoint itself
    again = load(tmp_path / "replay", capacity=100, chunk=10)
    assert again.total == 25
    for g in range(25, 48):
        again.add(step(1000 + g))  # another history
    save(again, tmp_path / "replay")
    restored = load(tmp_path / "replay", capacity=100, chunk=10)
    assert same(restored.all(), again.all())
    assert restored.all().reward[25:].tolist() == [1000 + g for g in range(25, 48)]


def test_pruning_keeps_what_two_checkpoints_need(tmp_path: Path) -> None:
    replay = Replay(30, chunk=10)
    states, contents = [], []
    for rows in (50, 75):
        fill(replay, rows)
        replay.save_chunks(tmp_path)
        states.append(replay.state_dict())
        contents.append(replay.all())
    replay.prune_chunks(tmp_path, states)
    # the first holds rows 20 … 49, the second 45 … 74
    assert sorted(path.stem for path in tmp_path.iterdir()) == [f"replay-{k:06d}" for k in (2, 3, 4, 5, 6)]
    older = Replay(30, chunk=10)
    older.load_state_dict(states[0])
    older.load_chunks(tmp_path)
    assert same(older.all(), contents[0])


def test_damage_is_detected(tmp_path: Path) -> None:
    replay = Replay(30, chunk=10)
    fill(replay, 15)
    replay.save_chunks(tmp_path)
    state, path = replay.state_dict(), tmp_path / "replay-000000.pt"
    content = path.read_bytes()

    restored = Replay(30, chunk=10)
    restored.load_state_dict(state)
    with pytest.raises(ValueError, match="only half of the replay is restored"):
        restored.sample(1)
    position = content.index(torch.arange(10.0).numpy().tobytes()) + 8  # the reward of row 2
    for damaged in (
        content[: len(content) // 2],
        content[:position] + b"\x01" + content[position + 1 :],
        b"",
    ):
        path.write_bytes(damaged)
        with pytest.raises(Damaged, match="damaged"):
            restored.load_chunks(tmp_path)
    path.unlink()
    with pytest.raises(Damaged, match="cannot be read .No such file"):
        restored.load_chunks(tmp_path)
    path.write_bytes(content)
    restored.load_chunks(tmp_path)
    assert same(restored.all(), replay.all())


def test_a_chunk_of_another_run_is_refused(tmp_path: Path) -> None:
    replay, other = Replay(30, chunk=10), Replay(30, chunk=10, seed=1)
    fill(replay, 15)
    replay.save_chunks(tmp_path)
    state = replay.state_dict()
    other.add(step(7, 15))
    other.save_chunks(tmp_path)  # a valid file with a valid checksum, in the place of ours
    restored = Replay(30, chunk=10)
    restored.load_state_dict(state)
    with pytest.raises(Damaged, match="belongs to another run"):
        restored.load_chunks(tmp_path)


def test_a_buffer_that_does_not_fit_in_memory_is_one_line() -> None:
    with pytest.raises(UserError, match="GB of memory, which is not available; choose a smaller buffer_size"):
        Replay(2**60).add(step(0))


def test_another_size_is_refused() -> None:
    replay = Replay(30, chunk=10)
    with pytest.raises(UserError, match="capacity 30, this one 40"):
        Replay(40, chunk=10).load_state_dict(replay.state_dict())


def test_nor_does_it_fit_when_a_run_resumes_after_a_whole_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    replay, restored = Replay(20, chunk=5), Replay(20, chunk=5)
    fill(replay, 10)  # no row is left over
    state = replay.state_dict()
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(UserError, match="choose a smaller buffer_size"):
        restored.load_state_dict(state)
