"""CAE: the critic as an explorer. The elliptical bonus over the critic's own embedding; it adds no parameter."""

from __future__ import annotations

from critex.explorers.elliptical import Elliptical


class CAEExplorer(Elliptical):
    """β = √(φᵀA⁻¹φ), A = λI + Σφφᵀ, with φ the last hidden layer of the value network, scaled by Algorithm 1."""
