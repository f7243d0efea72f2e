import numpy as np
import pytest
import scipy.linalg

from undertow.kernels.gaussian.linalg import (
    clip_explained,
    doubling_powers,
    project_psd,
    shrink_radius,
    solve_lyapunov,
    solve_riccati,
    spectral_radius,
    sqrt_and_inverse,
    symmetrize,
)


def stable(h, radius, rng):
    A = rng.standard_normal((h, h))
    return A * (radius / np.abs(np.linalg.eigvals(A)).max())


def psd(h, rank, rng):
    F = rng.standard_normal((h, rank))
    return F @ F.T


@pytest.mark.parametrize("radius", [0.1, 0.9, 0.9999])
@pytest.mark.parametrize("h", [1, 2, 17])
def test_riccati_equals_scipy(h, radius):
    rng = np.random.default_rng(h)
    A, Q = stable(h, radius, rng), psd(h, h, rng)
    F = rng.standard_normal((h, max(1, h // 2)))  # some directions are not observed
    X = solve_riccati(A, F @ F.T, Q)
    np.testing.assert_allclose(X, scipy.linalg.solve_discrete_are(A.T, F, Q, np.eye(F.shape[1])), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("radius", [0.0, 0.5, 0.9999])
@pytest.mark.parametrize("h", [1, 3, 20])
def test_lyapunov_equals_scipy(h, radius):
    rng = np.random.default_rng(h)
    F, W = stable(h, radius, rng), psd(h, h, rng)
    X = solve_lyapunov(doubling_powers(F), W)
    np.testing.assert_allclose(X, scipy.linalg.solve_discrete_lyapunov(F, W), rtol=1e-8, atol=1e-9)


def test_no_stationary_solution_is_an_error_and_not_nan():
    with pytest.raises(np.linalg.LinAlgError, match="spectral radius"):
        doubling_powers(np.array([[1.0]]))
    with pytest.raises(np.linalg.LinAlgError):
        doubling_powers(np.diag([0.5, 1.2]))
    with pytest.raises(np.linalg.LinAlgError, match="finite"):
        solve_riccati(np.array([[np.nan]]), np.eye(1), np.eye(1))
    with pytest.raises(np.linalg.LinAlgError, match=r"finite|converge"):
        solve_riccati(np.array([[1.5]]), np.zeros((1, 1)), np.eye(1))  # grows and is never observed


def test_psd_projection():
    X = np.diag([4.0, -1.0, 1e-9])
    np.testing.assert_allclose(project_psd(X), np.diag([4, 0, 1e-9]), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(project_psd(X, floor=0.1), np.diag([4, 0.4, 0.4]), rtol=1e-12)
    good = psd(5, 5, np.random.default_rng(0))
    assert np.array_equal(project_psd(good), symmetrize(good))


def test_clip_moves_only_the_directions_that_need_it():
    rng = np.random.default_rng(4)
    N = psd(6, 6, rng)
    root, inverse = sqrt_and_inverse(N)
    np.testing.assert_allclose(root @ root, N, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(root @ inverse, np.eye(6), rtol=1e-9, atol=1e-9)
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    shares = np.array([-2.0, 0.1, 0.5, 0.9, 1.0, 83.0])
    M = inverse @ (turn * shares) @ turn.T @ inverse
    clipped = clip_explained(M, N, 1e-3, tiny=1e-8)
    np.testing.assert_allclose(
        turn.T @ root @ clipped @ root @ turn,
        np.diag([1e-8, 0.1, 0.5, 0.9, 0.999, 0.999]),
        rtol=1e-8,
        atol=1e-9,
    )


def test_radius_is_shrunk_only_above_the_limit():
    A = stable(7, 1.3, np.random.default_rng(5))
    assert spectral_radius(shrink_radius(A, 0.99)) == pytest.approx(0.99, rel=1e-9)
    assert shrink_radius(A, 1.4) is A
