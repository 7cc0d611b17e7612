"""Attention in double, written from the contract in vkattn.h."""

import numpy as np


def attention(q, k, v, *, visible=None, bias=None, scale=None, softcap=0.0):
    """q [b][h][n_q][d], k and v [b][h_kv][n_kv][..]; visible and bias broadcast to the scores.
    Returns the context and the weights; a row without keys gives zeros."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    s = q @ k.swapaxes(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if softcap:
        s = softcap * np.tanh(s / softcap)
    if bias is not None:
        s = s + bias
    if visible is not None:
        s = np.where(visible, s, -np.inf)
    peak = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(peak), peak, 0))
    total = e.sum(-1, keepdims=True)
    weights = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    return weights @ v, weights


def causal(n_q, n_kv, offset=0):
    return np.arange(n_kv) <= np.arange(n_q)[:, None] + offset


def rotate(x, base, dim=None):
    """Rotary embedding of x [..][n][d], pairs (i, i + dim / 2), positions 0 .. n - 1."""
    dim = dim or x.shape[-1]
    half = dim // 2
    angle = np.arange(x.shape[-2])[:, None] * base ** (-2.0 * np.arange(half) / dim)
    a, b = x[..., :half], x[..., half:dim]
    turned = [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)]
    return np.concatenate([*turned, x[..., dim:]], -1)


def split_heads(x, n_head):
    """[b][n][h * d] to [b][h][n][d]."""
    return x.reshape(*x.shape[:2], n_head, -1).swapaxes(1, 2)


def join_heads(x):
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def nmse(got, want):
    """The worst row's squared error over its squared length."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    error = ((got - want) ** 2).sum(-1)
    return float((error / np.maximum((want**2).sum(-1), 1e-30)).max())
