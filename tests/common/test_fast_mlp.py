"""The products of the fast updater, by oneDNN and by MKL, against those in double precision."""

from collections.abc import Callable

import pytest
import torch as th

from sb3_clearning.common import fast_mlp
from sb3_clearning.common.fast_mlp import ONEDNN_SIZE, multiply

ROUTES = ("the machine's", "MKL's")


@pytest.fixture(params=ROUTES)
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "MKL's":
        monkeypatch.setattr(fast_mlp, "_linear", None)
    return request.param


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, ONEDNN_SIZE // (128 * 64) - 1, ONEDNN_SIZE // (128 * 64)])
@pytest.mark.usefixtures("route")
def test_products_equal_those_in_double_precision(rows: int, n: int, has_bias: bool, relu: bool) -> None:
    generator = th.Generator().manual_seed(rows + n)
    left, right, bias = (th.randn(n, *shape, generator=generator) for shape in ((rows, 128), (128, 64), (1, 64)))
    out = th.full((n, rows, 64), th.nan)
    copied = multiply(left, right, out, bias if has_bias else None, relu)
    assert copied is out
    own = multiply(left, right, th.empty_like(out), bias if has_bias else None, relu, copy=False)
    assert th.equal(own, out)
    expected = left.double() @ right.double() + (bias.double() if has_bias else 0)
    expected = expected.clamp_min(0) if relu else expected
    th.testing.assert_close(out, expected.float(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.transpose(1, 2).contiguous().transpose(1, 2)])
@pytest.mark.usefixtures("route")
def test_views_are_read_and_written(view: Callable[[th.Tensor], th.Tensor]) -> None:
    left, right = view(th.randn(2, 150, 160)), view(th.randn(2, 160, 130))
    out = view(th.empty(2, 150, 130))
    assert out[0].numel() * 160 >= ONEDNN_SIZE
    memory = out.data_ptr()
    assert multiply(left, right, out) is out
    assert out.data_ptr() == memory
    th.testing.assert_close(out, left @ right, rtol=1e-4, atol=1e-4)


def test_double_precision_stays_double() -> None:
    left, right, out = th.randn(1, 64, 32).double(), th.randn(1, 32, 16).double(), th.empty(1, 64, 16).double()
    multiply(left, right, out)
    th.testing.assert_close(out, left @ right, rtol=1e-13, atol=1e-13)


@pytest.mark.skipif(fast_mlp._linear is None, reason="this processor has no AVX-512: products are MKL's")
def test_who_switches_onednn_off_gets_mkl() -> None:
    left, right = th.randn(1, 64, 256), th.randn(1, 256, 256)
    results = {enabled: th.empty(1, 64, 256) for enabled in (True, False)}
    for enabled, out in results.items():
        with th.backends.mkldnn.flags(enabled=enabled):
            multiply(left, right, out)
    assert th.equal(results[False], th.bmm(left, right))
    th.testing.assert_close(results[True], results[False], rtol=1e-4, atol=1e-4)
