"""Algorithm 3, the peers and the bandits."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from critex.theory import CAE, Episode, Streams, bound, regret
from critex.theory.bandits import BANDITS, LinUCB, NeuralLinTS, NeuralLinUCB, bandit_regret
from critex.theory.memory import Counts, Regression
from critex.theory.peers import ACB, BDQN, LMCDQN, LSVIPHE, LSVIUCB, NNUCB, OPTRLSVI
from critex.theory.peers.bdqn import per_action
from critex.theory.problems import linear_mdp, random_tabular, tabular
from critex.theory.suites import ALPHAS, BANDIT_METHODS, MDP_METHODS, SUITES, TUNING_SEEDS, tuned

SEEDS = (1, 2, 3, 4)


def two_states(horizon=2):
    """Action 1 leads from state 0 to state 1, which pays 1 for every step; all else pays 0."""
    P = np.zeros((1, 2, 2, 2))
    P[0, 0, 0, 0] = P[0, 0, 1, 1] = P[0, 1, :, 1] = 1.0
    return tabular("two", P, np.array([[[0.0, 0.0], [1.0, 1.0]]]), horizon)


def random_episode(problem, seeds, rng):
    states = rng.integers(problem.states, size=(seeds, problem.horizon + 1))
    actions = rng.integers(problem.actions, size=(seeds, problem.horizon))
    return Episode(states, actions, rng.random(actions.shape))


@pytest.mark.parametrize("name", [name for name in MDP_METHODS if name != "cae-theorem"])
def test_every_method_is_sublinear_on_the_easy_problem(name):
    """With the α of the suites, which was tuned on other problems and with other seeds."""
    problem, seeds = two_states(), range(1, 9)
    agent = MDP_METHODS[name](problem, Streams(seeds, "agent"), tuned()["mdps"][name])
    total = regret(problem, agent, 200, seeds).cumsum(1).mean(0)
    assert total[-1] < 0.25 * 200, "never learning costs 1 an episode"
    assert total[-1] - total[99] < 0.5 * total[99] + 1e-9, "as much regret in the second half as in the first"


def test_no_suite_uses_the_tuning_seeds():
    assert not any(set(suite.seeds) & set(TUNING_SEEDS) for suite in SUITES.values())
    assert all(alpha in ALPHAS for kind in tuned().values() for alpha in kind.values())
    assert set(tuned()["mdps"]) == set(MDP_METHODS) - {"cae-theorem"}


def test_regression_is_ridge_regression_on_all_episodes():
    problem, rng = linear_mdp((1, 2)), np.random.default_rng(0)
    memory, episodes = Regression(problem, 2, ridge=0.7), []
    for _ in range(30):
        episodes.append(random_episode(problem, 2, rng))
        memory.add(episodes[-1])
    value, h, s = rng.random((2, problem.states)), 3, 1
    phi = np.array([problem.phi[s, e.states[s, h], e.actions[s, h]] for e in episodes])
    y = np.array([e.rewards[s, h] + value[s, e.states[s, h + 1]] for e in episodes])
    A = 0.7 * np.eye(problem.dim) + phi.T @ phi
    np.testing.assert_allclose(memory.weights(h, value)[s], np.linalg.solve(A, phi.T @ y), rtol=1e-8)
    every = problem.phi[s]
    width = np.sqrt(np.einsum("nad,de,nae->na", every, np.linalg.inv(A), every))
    np.testing.assert_allclose(memory.width()[s, h], width, rtol=1e-8)


def test_counts_are_all_that_a_loss_needs():
    problem, rng = random_tabular((1, 2)), np.random.default_rng(0)
    counts, episodes = Counts(problem, 2), [random_episode(random_tabular((1, 2)), 2, rng) for _ in range(20)]
    for episode in episodes:
        counts.add(episode)
    value, f, h = rng.random((2, problem.states)), rng.random((2, problem.states, problem.actions)), 2
    target = counts.targets(h, value)
    for s in range(2):
        gradient = np.zeros_like(f[s])
        for e in episodes:
            pair = e.states[s, h], e.actions[s, h]
            gradient[pair] += 2 * (f[s][pair] - e.rewards[s, h] - value[s, e.states[s, h + 1]])
        np.testing.assert_allclose(2 * (counts.visits[s, h] * f[s] - target[s]), gradient)


def test_lsvi_ucb_closed_form_on_two_states():
    problem = two_states()
    agent = LSVIUCB(problem, Streams((1,), "agent"), alpha=0.5)
    np.testing.assert_allclose(agent.q(), 0.5)  # nothing seen: α√(1/λ)
    agent.update(Episode(np.array([[0, 1, 1]]), np.array([[1, 0]]), np.array([[0.0, 1.0]])))
    q = agent.q()[0]
    # (1, action 0) at h = 2: one reward 1 shrunk by the ridge to 1/2, and the width is √(1/2).
    last = 0.5 + 0.5 * np.sqrt(0.5)
    np.testing.assert_allclose(q[1], [[0.5, 0.5], [last, 0.5]])
    np.testing.assert_allclose(q[0, 0], [0.5, last / 2 + 0.5 * np.sqrt(0.5)])


def test_algorithm_3_to_the_letter():
    """One seed against the pseudo-code, written with lists and one step at a time."""
    problem, streams = two_states(3), Streams((7,), "agent")
    agent = CAE(problem, streams, alpha=0.3, step_size=0.01, hidden=8)
    W = [[w[0, h].detach().clone().requires_grad_() for w in agent.network.weights] for h in range(3)]
    theta = [agent.theta[0, h].clone() for h in range(3)]
    A = [torch.eye(agent.dim, dtype=torch.float64) for _ in range(3)]
    b = [torch.zeros(agent.dim, dtype=torch.float64) for _ in range(3)]
    x = agent.x.reshape(2, 2, -1)

    def phi(h, s, a):
        out = (x[s, a] @ W[h][0]).relu() @ W[h][1]
        return out / out.norm().clamp_min(1.0)

    def table(h, bonus):
        out = torch.zeros(2, 2, dtype=torch.float64)
        for s, a in np.ndindex(2, 2):
            f = phi(h, s, a)
            out[s, a] = theta[h] @ f + bonus * 0.3 * (f @ A[h].inverse() @ f).sqrt()
        return out.detach()

    Q = [table(h, 0.0) for h in range(3)]
    stored, rng = [], np.random.default_rng(0)
    for _ in range(6):
        np.testing.assert_allclose(agent.q()[0], torch.stack(Q), atol=1e-10)
        episode = random_episode(problem, 1, rng)
        stored.append(episode)
        agent.update(episode)
        target_q, Q = [*Q, torch.zeros(2, 2, dtype=torch.float64)], []
        for h in range(3):
            s, a = episode.states[0, h], episode.actions[0, h]
            f = phi(h, s, a).detach()
            q = episode.rewards[0, h] + target_q[h + 1][episode.states[0, h + 1]].max()
            A[h] += torch.outer(f, f)
            b[h] += q * f
            theta[h] = A[h].inverse() @ b[h]
            loss = sum(
                (
                    theta[h] @ phi(h, e.states[0, h], e.actions[0, h])
                    - e.rewards[0, h]
                    - target_q[h + 1][e.states[0, h + 1]].max()
                )
                ** 2
                for e in stored
            )
            gradients = torch.autograd.grad(loss, W[h])
            W[h] = [(w - 0.01 * g).detach().requires_grad_() for w, g in zip(W[h], gradients, strict=True)]
            Q.append(table(h, 1.0))


@pytest.mark.parametrize("refit", [False, True])
def test_features_stay_in_the_unit_ball_and_the_potential_below_its_bound(refit):
    problem = random_tabular((1, 2))
    agent = CAE(problem, Streams((1, 2), "agent"), alpha=1.0, step_size=1e-3, refit=refit)
    regret(problem, agent, 60, (1, 2))
    assert agent.phi().norm(dim=-1).max() <= 1 + 1e-12
    assert agent.potential.max() > 0
    if not refit:  # the potential is a sum over the A of its day
        assert (agent.potential <= bound.potential_bound(agent.dim, 60)).all()


@pytest.mark.parametrize("method", [LSVIUCB, LSVIPHE, OPTRLSVI, BDQN, ACB])
def test_elliptical_potential_bound_is_held_along_runs(method):
    problem = linear_mdp((1, 2))
    agent = method(problem, Streams((1, 2), "agent"), 0.5)
    for m in range(1, 6):
        regret(problem, agent, 10, (1, 2))
        assert (agent.memory.potential <= bound.potential_bound(agent.memory.dim, 10 * m)).all()


def repeated(episode, seeds):
    """The same episode for every seed."""
    return Episode(*(np.repeat(part, seeds, 0) for part in episode))


RIGHT = Episode(np.array([[0, 1, 1]]), np.array([[1, 0]]), np.array([[0.0, 1.0]]))
"""In two_states(2): to state 1, which then pays 1."""


@pytest.mark.parametrize(
    ("method", "highest"),
    [(LSVIUCB, [2, 2]), (ACB, [2, 2]), (LSVIPHE, [2, 1]), (NNUCB, [2, 1]), (LMCDQN, [2, 1])],
)
def test_values_are_clipped_as_in_the_original(method, highest):
    """LSVI-UCB at H; LSVI-PHE, NN-UCB and LMCDQN at H − h + 1 and at 0."""
    agent = method(two_states(), Streams(range(1, 30), "agent"), alpha=1000.0)
    agent.update(repeated(RIGHT, 29))
    q = agent.q()
    np.testing.assert_allclose(q.max((0, 2, 3)), highest)
    assert q.min() >= 0
    if method is LMCDQN:  # half of its draws are negative
        assert (q == 0).mean() > 0.3


def test_opt_rlsvi_closed_form_on_two_states():
    agent = OPTRLSVI(two_states(), Streams((1,), "agent"), alpha=0.0)
    np.testing.assert_allclose(agent.q()[0, :, 0, 0], [2.0, 1.0])  # nothing seen: the default H − h + 1
    agent.update(RIGHT)
    # One visit: width √½, between the two, and the reward 1 is shrunk by the ridge to ½.
    known = (0.9 - np.sqrt(0.5)) / 0.4
    np.testing.assert_allclose(agent.q()[0, 1, 1], [known * 0.5 + (1 - known), 1.0])
    for _ in range(2):
        agent.update(RIGHT)
    # Three visits: width ½, so the regression alone decides: ¾, and at the first step ¾ of the largest value after it.
    np.testing.assert_allclose(agent.q()[0, 1, 1], [0.75, 1.0])
    np.testing.assert_allclose(agent.q()[0, 0, 0], [2.0, 0.75 * 1.0])


def test_bdqn_acts_by_a_draw_and_targets_the_mean():
    agent = BDQN(two_states(), Streams(range(1000), "agent"), alpha=0.4)
    agent.update(repeated(RIGHT, 1000))
    q = agent.q()
    # At the first step the mean is ½(0 + ½), and the variance α²/2 is that of its own draw alone.
    np.testing.assert_allclose(q[:, 0, 0, 1].mean(), 0.25, atol=0.04)
    np.testing.assert_allclose(q[:, 0, 0, 1].var(), 0.16 / 2, rtol=0.18)
    assert np.abs(np.corrcoef(q[:, 0, 0, 1], q[:, 1, 1, 0])[0, 1]) < 0.12
    assert (agent.q() != q).all()  # a new draw for the next episode


def test_lsvi_phe_takes_the_best_of_its_ensemble():
    agent = LSVIPHE(two_states(), Streams(range(1000), "agent"), alpha=0.02)
    for _ in range(3):
        agent.update(repeated(RIGHT, 1000))
    # Three visits of (1, 0) at the last step: ¾ + 0.02·½ times the largest of 8 normals, 1.4236 on average.
    np.testing.assert_allclose(agent.q()[:, 1, 1, 0].mean(), 0.75 + 0.01 * 1.4236, atol=8e-4)


def test_nn_ucb_fits_then_bounds():
    """Λ and g are those of the W that was just fitted: after one visit gᵀΛ⁻¹g = ‖g‖²/(1 + ‖g‖²)."""
    agent = NNUCB(two_states(), Streams((1, 2), "agent"), alpha=0.5)
    agent.update(repeated(RIGHT, 2))
    before, q = agent.w.clone(), agent.q()
    assert not torch.equal(agent.w, before)
    g = agent.tangent(1)[:, 2]  # (1, 0), the pair visited at the last step
    torch.testing.assert_close(agent.grams[1].matrix()[0], torch.eye(32).double() + torch.outer(g[0], g[0]))
    squared = (g**2).sum(-1)
    bonus = 0.5 * (squared / (1 + squared)).sqrt()
    np.testing.assert_allclose(q[:, 1, 1, 0], (agent._value(1)[:, 2] + bonus).clamp(0, 1))
    agent.q()
    torch.testing.assert_close(agent.grams[1].matrix()[0], torch.eye(32).double() + torch.outer(g[0], g[0]))


def test_antisymmetric_last_layer_never_moves():
    """With φ(·|W¹) = 0 for all pairs the closed form gives θ = 0, hence no gradient and no bonus, for good."""
    problem = two_states()
    agent = CAE(problem, Streams((1,), "agent"), alpha=1.0, step_size=0.1)
    first, last = agent.network.weights
    with torch.no_grad():
        first[..., 32:] = first[..., :32]
        last[..., 32:, :] = -last[..., :32, :]
    agent.features, agent.Q = agent.phi(), np.zeros(agent.shape)
    agent.update(random_episode(problem, 1, np.random.default_rng(0)))
    np.testing.assert_allclose(agent.Q, 0.0, atol=1e-12)
    assert torch.equal(agent.network.weights[0], first)


def test_thompson_draws_have_the_moments_of_the_posterior():
    problem = two_states()
    agent = CAE(problem, Streams(range(1000), "agent"), alpha=1.0, strategy="thompson", hidden=4)
    # All seeds share one history and one φ, so their draws are independent and of the same law.
    for weight in agent.network.weights:
        weight.data[:] = weight.data[:1]
    agent.theta[:] = agent.theta[:1]
    agent.features = agent.phi()
    rng = np.random.default_rng(0)
    for _ in range(3):
        one = random_episode(problem, 1, rng)
        agent.step_size = 0.0
        agent.update(Episode(*(np.repeat(part, 1000, 0) for part in one)))
    draws = agent.draw()[:, 0].numpy()
    exact = agent.inverse[0, 0].numpy()
    error = np.sqrt(exact.diagonal() / 1000)
    assert (np.abs(draws.mean(0)) < 4.5 * error).all()
    np.testing.assert_allclose(np.cov(draws.T), exact, atol=0.2)
    projected = agent.bonus(agent.phi().detach())[:, 0, 0]
    variance = (agent.phi()[0, 0, 0] @ agent.inverse[0, 0] @ agent.phi()[0, 0, 0]).item()
    assert projected.var().item() == pytest.approx(variance, rel=0.15)


def test_langevin_samples_the_posterior():
    problem = two_states(1)
    agent = LMCDQN(problem, Streams(range(2000), "agent"), alpha=0.4)
    agent.adam, agent.steps = 0.0, 200
    episode = Episode(np.array([[0, 1]]), np.array([[1]]), np.array([[0.6]]))
    for _ in range(3):
        agent.update(Episode(*(np.repeat(part, 2000, 0) for part in episode)))
    agent.episodes = 12  # a smaller step size, hence less of its bias
    agent.q()
    w = agent.w[:, 0]  # three visits of (0, 1): A = diag(1, 4, 1, 1), mean 3·0.6/4
    np.testing.assert_allclose(w.mean(0), [0, 0.45, 0, 0], atol=0.04)
    np.testing.assert_allclose(w.var(0), [0.16, 0.04, 0.16, 0.16], rtol=0.2)


def test_acb_bonus_is_the_largest_of_many_draws_of_the_width():
    problem = two_states()
    agent = ACB(problem, Streams(range(400), "agent"), alpha=1.0)
    episode = Episode(np.array([[0, 1, 1]]), np.array([[1, 0]]), np.array([[0.0, 1.0]]))
    for _ in range(2):
        agent.update(Episode(*(np.repeat(part, 400, 0) for part in episode)))
    agent.prepare()
    # The largest of 128 |N(0, 1)| times the width; its median is Φ⁻¹(½ + ½·2^(−1/128)).
    width = np.sqrt([[1, 1 / 3], [1, 1]])
    median = norm.ppf(0.5 + 0.5 * 0.5 ** (1 / agent.ensemble))
    np.testing.assert_allclose(np.median(agent.bonus[:, 0], 0), median * width, rtol=0.05)


def test_bdqn_regresses_each_action_by_itself():
    problem = linear_mdp((1,))
    phi = per_action(problem)[0]
    same, other = phi[0, 0] @ phi[1, 0], phi[0, 0] @ phi[1, 1]
    assert same > 0
    assert other == 0
    assert np.linalg.norm(phi, axis=-1).max() <= 1


def test_nn_ucb_tangent_is_the_gradient():
    problem = two_states()
    agent = NNUCB(problem, Streams((1,), "agent"), 0.5)
    w = agent.w.clone().requires_grad_()
    f = ((agent.x @ w).relu() @ agent.head)[..., 0]
    gradient = torch.autograd.grad(f[0, 1, 2], w)[0][0, 1].flatten()
    torch.testing.assert_close(agent.tangent(1)[0, 2], gradient)


def test_neural_bandits_treat_old_features_as_in_their_papers():
    """After training, Neural-LinTS recomputes A and b under the new φ; Neural-LinUCB keeps the old features."""
    bandit, rng = BANDITS["cosine-bandit"], np.random.default_rng(0)
    x, reward = rng.standard_normal((50, 1, 8)) / 8**0.5, rng.standard_normal((50, 1))
    for method, recomputed in ((NeuralLinTS, True), (NeuralLinUCB, False)):
        agent = method(bandit, Streams((1,), "agent"), 0.1)
        old, last = agent.phi(x.swapaxes(0, 1))[0], agent.readout().detach().clone()
        for each, r in zip(x, reward, strict=True):
            agent.update(each, r)
        phi = agent.phi(x.swapaxes(0, 1))[0]
        assert not np.allclose(phi, old)
        rows = phi if recomputed else old
        np.testing.assert_allclose(agent.gram.matrix()[0], np.eye(16) + rows.T @ rows, atol=1e-8)
        np.testing.assert_allclose(agent.b[0], rows.T @ reward[:, 0], atol=1e-8)
        if recomputed:  # the last layer was trained, too
            assert not torch.equal(agent.last.detach(), last)


@pytest.mark.parametrize("name", BANDIT_METHODS)
def test_bandits_are_sublinear_where_the_mean_is_linear(name):
    bandit = BANDITS["linear-bandit"]
    agent = BANDIT_METHODS[name](bandit, Streams(SEEDS, "agent"), tuned()["bandits"][name])
    total = bandit_regret(bandit, agent, 300, SEEDS).cumsum(1).mean(0)
    assert total[-1] - total[149] < 0.5 * total[149]
    assert agent.potential.max() <= bound.potential_bound(agent.dim, 300)


def test_only_neural_bandits_learn_a_cosine():
    bandit = BANDITS["cosine-bandit"]
    linear, neural = (
        bandit_regret(bandit, method(bandit, Streams(SEEDS, "agent"), 0.1), 400, SEEDS)[:, 200:].mean()
        for method in (LinUCB, NeuralLinUCB)
    )
    assert neural < 0.4 * linear
