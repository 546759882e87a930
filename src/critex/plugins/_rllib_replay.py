"""Which episode a replayed transition comes from: RLlib's prioritized buffer gives each sample an id of its own."""

from __future__ import annotations

from typing import Any

from ray.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer

SOURCE = "critex_episode"


class SourcedReplay(PrioritizedEpisodeReplayBuffer):
    """The same buffer, whose samples name their episode in `custom_data`. Their ids stay: RLlib orders a batch by them."""

    __slots__ = ()

    def sample(self, *args: Any, **keywords: Any) -> Any:
        samples: Any = super().sample(*args, **keywords)
        for sample, leaf in zip(samples, self._last_sampled_indices, strict=True):
            index = self._indices[self._tree_idx_to_sample_idx[leaf]][0] - self._num_episodes_evicted
            sample.custom_data[SOURCE] = self.episodes[index].id_
        return samples


def name_sources(algorithm: Any, **_: Any) -> None:
    """RLlib's callback `on_algorithm_init`: from now on, samples name their episode."""
    if type(algorithm.local_replay_buffer) is PrioritizedEpisodeReplayBuffer:
        algorithm.local_replay_buffer.__class__ = SourcedReplay


def source_of(episode: Any) -> str:
    """The id of the episode that a sample was cut from."""
    source: str = episode.custom_data.get(SOURCE, episode.id_)
    return source
