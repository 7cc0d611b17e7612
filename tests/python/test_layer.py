"""Layers, and checkpoints under the names of PyTorch, GPT-2, BERT and Llama."""

import json
import struct
import warnings

import numpy as np
import oracle
import pytest

import vkattn

TYPES = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int64": "I64", "bool": "BOOL"}


def write_safetensors(path, tensors, metadata=None):
    """uint16 arrays are bfloat16."""
    header, data = {}, b""
    for name, array in tensors.items():
        blob = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": TYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(blob)],
        }
        data += blob
    if metadata:
        header["__metadata__"] = metadata
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def weights(rng, *shapes):
    return [rng.standard_normal(shape, np.float32) / shape[-1] ** 0.5 for shape in shapes]


def expected(x, n_head, q, k, v, o, *, n_kv_head=None, visible=None, rope_base=None):
    """The layer in double; q, k, v and o are (weight, bias or 0)."""
    heads = [
        oracle.split_heads(x @ w.T.astype(np.float64) + b, n)
        for (w, b), n in zip((q, k, v), (n_head, n_kv_head or n_head, n_kv_head or n_head))
    ]
    if rope_base:
        heads[:2] = [oracle.rotate(h, rope_base) for h in heads[:2]]
    context, shares = oracle.attention(*heads, visible=visible)
    return oracle.join_heads(context) @ o[0].T + o[1], shares


def test_layer_and_scores(device, rng):
    (x,) = weights(rng, (2, 5, 12))
    (wq, wk, wv, wo), bias = weights(rng, (16, 12), (8, 12), (6, 12), (10, 12)), np.ones(10, "f4")
    layer = vkattn.Layer(
        device, n_head=4, n_kv_head=2, query=wq, key=wk, value=wv, output=(wo, bias)
    )
    assert (layer.head_dim, layer.value_dim, layer.output_dim) == (4, 3, 10)
    want, shares = expected(
        x, 4, (wq, 0), (wk, 0), (wv, 0), (wo, bias), n_kv_head=2, visible=oracle.causal(5, 5)
    )
    got, scores = layer(x, causal=True, scores="softmax")
    assert oracle.nmse(got, want) < 1e-10 and oracle.nmse(scores, shares) < 1e-10
    got, scores = layer(x.swapaxes(0, 1), layout="sbd", causal=True, scores="softmax")
    assert oracle.nmse(got.swapaxes(0, 1), want) < 1e-10 and oracle.nmse(scores, shares) < 1e-10


@pytest.mark.parametrize("layout", ["bsd", "sbd"])
@pytest.mark.parametrize("learnt, zero", [(True, True), (True, False), (False, True)])
def test_appended_rows(device, rng, layout, learnt, zero):
    """add_bias_kv and add_zero_attn, with a padding mask, of key and value of their own."""
    x, memory, other = weights(rng, (2, 5, 12), (2, 7, 9), (2, 7, 10))
    wq, wk, wv = weights(rng, (16, 12), (8, 9), (6, 10))
    bk, bv, row_k, row_v = weights(rng, (8,), (6,), (8,), (6,))
    keys, values = memory @ wk.T + bk, other @ wv.T + bv
    more = [(row_k, row_v)] * learnt + [(np.zeros(8), np.zeros(6))] * zero
    for key, value in more:
        keys = np.concatenate([keys, np.broadcast_to(key, (2, 1, 8))], 1)
        values = np.concatenate([values, np.broadcast_to(value, (2, 1, 6))], 1)
    hidden = np.zeros((2, 7), bool)
    hidden[0], hidden[1, 3:] = True, True
    visible = ~np.concatenate([hidden, np.zeros((2, len(more)), bool)], 1)[:, None, None]
    heads = [oracle.split_heads(t, n) for t, n in ((x @ wq.T, 4), (keys, 2), (values, 2))]
    context, shares = oracle.attention(*heads, visible=visible)
    layer = vkattn.Layer(
        device,
        n_head=4,
        query=wq,
        key=(wk, bk),
        value=(wv, bv),
        bias_kv=(row_k, row_v) if learnt else None,
        zero_attn=zero,
        layout=layout,
    )
    assert layer.n_extra == len(more)
    assert (layer.key_dim, layer.value_input_dim, layer.n_kv_head) == (9, 10, 2)
    inputs = [t.swapaxes(0, 1) if layout == "sbd" else t for t in (x, memory, other)]
    got, scores = layer(*inputs, key_padding_mask=hidden, scores="softmax")
    got = got.swapaxes(0, 1) if layout == "sbd" else got
    assert oracle.nmse(got, oracle.join_heads(context)) < 1e-10
    assert oracle.nmse(scores, shares) < 1e-10


def test_appended_rows_of_a_checkpoint(device, rng, tmp_path):
    """As nn.MultiheadAttention(8, 2, add_bias_kv=True) names them."""
    stacked, out, row_k, row_v, x = weights(rng, (24, 8), (8, 8), (1, 1, 8), (1, 1, 8), (2, 5, 8))
    tensors = {"in_proj_weight": stacked, "out_proj.weight": out, "bias_k": row_k, "bias_v": row_v}
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {f"attn.{name}": t for name, t in tensors.items()})
    layer = vkattn.Layer.from_safetensors(path, "attn.", n_head=2, device=device)
    parts = dict(zip(("query", "key", "value"), np.split(stacked, 3)))
    pair = row_k.ravel(), row_v.ravel()
    same = vkattn.Layer(device, n_head=2, output=out, bias_kv=pair, **parts)
    assert layer.n_extra == 1 and np.array_equal(layer(x), same(x))
    del tensors["bias_v"]
    write_safetensors(path, {f"attn.{name}": t for name, t in tensors.items()})
    with pytest.raises(vkattn.InvalidError, match="there is no tensor attn.bias_v"):
        vkattn.Layer.from_safetensors(path, "attn.", n_head=2, device=device)


def test_appended_rows_refused(device):
    w, row = np.ones((8, 8), "f4"), np.ones(8, "f4")
    given = {"n_head": 2, "query": w, "key": w, "value": w}
    x = np.ones((1, 3, 8), "f4")
    with vkattn.Layer(device, bias_kv=(row, row), **given) as layer:
        options = {"causal": True, "window": (1, 1), "kv_length": [1], "rope": vkattn.Rope(4)}
        for name, value in options.items():
            with pytest.raises(vkattn.UnsupportedError, match=f"{name}: not supported in a layer"):
                layer(x, **{name: value})
        with pytest.raises(vkattn.InvalidError, match="mask: expected 3 keys"):
            layer(x, mask=np.ones((3, 2), bool))
        with pytest.raises(vkattn.InvalidError, match="key: expected 3 axes, the last 8"):
            layer(x, np.ones((1, 3, 9), "f4"))
        with pytest.raises(vkattn.InvalidError, match="value: expected batch and rows of key"):
            layer(x, x, np.ones((1, 4, 8), "f4"))
    with pytest.raises(vkattn.InvalidError, match=r"bias_kv of value: expected \[8\], got \[7\]"):
        vkattn.Layer(device, bias_kv=(row, row[:7]), **given)
    with pytest.raises(TypeError, match="bias_kv: expected a pair"):
        vkattn.Layer(device, bias_kv=row, **given)
    with pytest.raises(vkattn.UnsupportedError, match="quantize: not supported"):
        vkattn.Layer(device, zero_attn=True, quantize="q8_0", **given)


def test_layer_with_cache(device, rng):
    (x,) = weights(rng, (1, 6, 8))
    wq, wk, wv = weights(rng, (8, 8), (8, 8), (8, 8))
    layer = vkattn.Layer(device, n_head=2, query=wq, key=wk, value=wv)
    cache = vkattn.Cache(device, batch=1, n_kv_head=2, head_dim=4, capacity=8)
    whole = layer(x, causal=True)
    parts = [layer(x[:, i : i + 2], cache=cache, causal=True) for i in (0, 2, 4)]
    assert oracle.nmse(np.concatenate(parts, 1), whole) < 1e-10
    assert cache.length() == 6


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"n_head": 3}, "query.weight: expected rows for 3 heads"),
        ({"n_head": 0}, "n_head: expected a whole number from 1"),
        ({"n_kv_head": 4}, "key.weight: expected 4 heads of 4 features"),
        ({"key": np.ones((6, 12), "f4")}, "key.weight"),
        ({"query": np.ones(16, "f4")}, r"query.weight: expected \[out\]\[in\]"),
        ({"query": (np.ones((16, 12), "f4"), np.ones(15, "f4"))}, r"query.bias: expected \[16\]"),
        ({"value": np.ones((8, 12), "f2")}, "value: expected f32 as query.weight is, got f16"),
        ({"output": np.ones((10, 15), "f4")}, r"output.weight: expected \[out\]\[16\]"),
        ({"query": np.ones((16, 12), "f8")}, "query.weight: float64 is not"),
        ({"query": np.ones((16, 12), "i4")}, "query.weight: expected f32, f16, bf16, got i32"),
        ({"dtype": "i32"}, "dtype: expected f32"),
        ({"layout": "dsb"}, "layout: expected one of bsd, sbd"),
        ({"n_head": 2**40}, "n_head: expected a whole number"),
    ],
)
def test_wrong_weights(device, change, sentence):
    good = {
        name: np.ones((rows, 12), "f4") for name, rows in (("query", 16), ("key", 8), ("value", 8))
    }
    vkattn.Layer(device, n_head=4, **good).close()
    with pytest.raises(vkattn.InvalidError, match=sentence):
        vkattn.Layer(device, **{"n_head": 4, **good, **change})


def test_recover_is_for_lost_devices(device, rng):
    (x,) = weights(rng, (1, 3, 4))
    (w,) = weights(rng, (4, 4))
    layer = vkattn.Layer(device, n_head=1, query=w, key=w, value=w, keep_weights=True)
    want = layer(x)
    with pytest.raises(vkattn.InvalidError, match="Device.recover"):
        device.recover()
    np.testing.assert_array_equal(layer(x), want)


def test_closed_layer(device):
    w = np.ones((4, 4), "f4")
    layer = vkattn.Layer(device, n_head=1, query=w, key=w, value=w)
    layer.close()
    with pytest.raises(vkattn.ClosedError, match="this Layer has been closed"):
        layer(np.ones((1, 2, 4), "f4"))


# ---- Checkpoints --------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("split", [True, False])
def test_pytorch_names(device, rng, tmp_path, bias, split):
    (x,) = weights(rng, (2, 5, 12))
    wq, wk, wv, wo = weights(rng, *[(12, 12)] * 4)
    bq, bk, bv, bo = weights(rng, *[(12,)] * 4) if bias else (np.float32(0),) * 4
    tensors = {"a.out_proj.weight": wo, "b.in_proj_weight": wo}
    if split:
        tensors.update({"a.q_proj_weight": wq, "a.k_proj_weight": wk, "a.v_proj_weight": wv})
    else:
        tensors["a.in_proj_weight"] = np.concatenate([wq, wk, wv])
    if bias:
        tensors.update({"a.in_proj_bias": np.concatenate([bq, bk, bv]), "a.out_proj.bias": bo})
    path = write_safetensors(tmp_path / "model.safetensors", tensors)
    want, _ = expected(x, 3, (wq, bq), (wk, bk), (wv, bv), (wo, bo))
    for prefix in ("a.", "a"):
        layer = vkattn.Layer.from_safetensors(path, prefix, n_head=3, device=device)
        assert oracle.nmse(layer(x), want) < 1e-10
    with pytest.raises(vkattn.InvalidError, match="n_head: expected"):
        vkattn.Layer.from_safetensors(path, "a.", device=device)


def test_gpt2_names(device, rng, tmp_path):
    (x,) = weights(rng, (1, 6, 8))
    w, wo, b, bo = weights(rng, (8, 24), (8, 8), (24,), (8,))
    tensors = {
        "h.0.attn.c_attn.weight": w,
        "h.0.attn.c_attn.bias": b,
        "h.0.attn.c_proj.weight": wo,
        "h.0.attn.c_proj.bias": bo,
        "h.0.attn.bias": np.tril(np.ones((1, 1, 6, 6), np.float32)),
        "h.0.attn.masked_bias": np.array(-1e4, np.float32),
        "h.0.mlp.c_proj.weight": wo,
    }
    write_safetensors(tmp_path / "model.safetensors", tensors)
    (tmp_path / "config.json").write_text('{"n_head": 2, "n_embd": 8}')
    layer = vkattn.Layer.from_safetensors(tmp_path, "h.0.attn.", device=device)
    projections = zip(np.split(w.T, 3), np.split(b, 3))
    want, _ = expected(x, 2, *projections, (wo.T, bo), visible=oracle.causal(6, 6))
    assert oracle.nmse(layer(x, causal=True), want) < 1e-10


@pytest.mark.parametrize(
    "prefix, names",
    [
        ("bert.encoder.layer.0.attention.", "self.query self.key self.value output.dense"),
        (
            "vit.encoder.layer.0.attention.",
            "attention.query attention.key attention.value output.dense",
        ),
        ("distilbert.transformer.layer.0.attention.", "q_lin k_lin v_lin out_lin"),
    ],
)
def test_encoder_names(device, rng, tmp_path, prefix, names):
    (x,) = weights(rng, (2, 4, 8))
    w = weights(rng, *[(8, 8)] * 4)
    b = weights(rng, *[(8,)] * 4)
    names = names.split()
    (tmp_path / "config.json").write_text('{"n_heads": 4}')  # as DistilBERT calls it
    tensors = {f"{prefix}{n}.weight": w for n, w in zip(names, w)}
    tensors.update({f"{prefix}{n}.bias": b for n, b in zip(names, b)})
    tensors[f"{prefix}output.LayerNorm.weight"] = b[0]
    path = write_safetensors(tmp_path / "bert.safetensors", tensors)
    layer = vkattn.Layer.from_safetensors(path, prefix, device=device)
    want, _ = expected(x, 4, *zip(w, b))
    assert oracle.nmse(layer(x), want) < 1e-10


def llama(rng, prefix="model.layers.0.self_attn."):
    w = weights(rng, (16, 12), (8, 12), (8, 12), (12, 16))
    return w, {f"{prefix}{n}_proj.weight": w for n, w in zip("qkvo", w)}


def test_phi_names(device, rng, tmp_path):
    (x,) = weights(rng, (2, 5, 12))
    prefix = "model.layers.0.self_attn."
    w, _ = llama(rng, prefix)
    fused = {f"{prefix}qkv_proj.weight": np.concatenate(w[:3]), f"{prefix}o_proj.weight": w[3]}
    path = write_safetensors(tmp_path / "model.safetensors", fused)
    config = {"num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 5e5}
    (tmp_path / "config.json").write_text(json.dumps(config))
    layer = vkattn.Layer.from_safetensors(path, prefix, device=device)
    assert layer.n_kv_head == 2
    options = {"n_kv_head": 2, "visible": oracle.causal(5, 5), "rope_base": 5e5}
    want, _ = expected(x, 4, *((m, 0) for m in w), **options)
    assert oracle.nmse(layer(x, causal=True), want) < 1e-10
    for rows in (16, 17, 33, 8):  # no keys, odd ones, fewer than queries
        fused[f"{prefix}qkv_proj.weight"] = np.ones((rows, 12), np.float32)
        write_safetensors(path, fused)
        with pytest.raises(vkattn.InvalidError, match=f"query, key and value, got {rows}"):
            vkattn.Layer.from_safetensors(path, prefix, device=device)


def config_says(path, config, load):
    """What config.json says of a layer of 4 heads of 4 features without biases."""
    for more, error, sentence in (
        ({"head_dim": 8}, vkattn.InvalidError, "head_dim is 8, but the query has 16 rows"),
        ({"head_dim": 4.0}, vkattn.InvalidError, "head_dim is 4.0"),
        ({"attention_bias": True}, vkattn.InvalidError, "attention_bias is true"),
        ({"scale_attn_weights": False}, vkattn.UnsupportedError, "scale_attn_weights false"),
        ({"attn_temperature_tuning": True}, UserWarning, "'attn_temperature_tuning'"),
        ({"use_qk_norm": True}, UserWarning, "'use_qk_norm' would change"),
        ({"attention_window": [4], "logits_soft_cap": 5}, UserWarning, "'logits_soft_cap'"),
    ):
        path.write_text(json.dumps({**config, **more}))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(error, match=sentence):
                load()
    harmless = {
        **{"head_dim": 4, "attention_bias": False, "attention_dropout": 0.5, "attn_pdrop": 0.5},
        **{"scale_attn_weights": True, "max_window_layers": 4, "_attn_implementation": "sdpa"},
        **{"attention_probs_dropout_prob": 0.1, "output_attentions": True, "use_cache": True},
        **{"attention_softmax_in_fp32": True, "qk_layernorm": False, "attention_window": None},
    }
    path.write_text(json.dumps({**config, **harmless}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load()


def test_llama_names(device, rng, tmp_path):
    (x,) = weights(rng, (2, 5, 12))
    w, tensors = llama(rng)
    prefix = "model.layers.0.self_attn."
    path = write_safetensors(tmp_path / "model-00001-of-00002.safetensors", tensors)
    want, _ = expected(
        x, 4, *((m, 0) for m in w), n_kv_head=2, visible=oracle.causal(5, 5), rope_base=5e5
    )
    still, _ = expected(x, 4, *((m, 0) for m in w), n_kv_head=2, visible=oracle.causal(5, 5))

    def run(*arguments, **more):
        layer = vkattn.Layer.from_safetensors(*arguments, device=device, **more)
        assert layer.n_kv_head == 2
        return layer(x, causal=True)

    with pytest.raises(vkattn.InvalidError, match="rope: expected a Rope, or False"):
        run(path, prefix, n_head=4)
    assert oracle.nmse(run(path, prefix, n_head=4, rope=vkattn.Rope(4, 5e5)), want) < 1e-9
    assert oracle.nmse(run(path, prefix, n_head=4, rope=False), still) < 1e-10

    config = {"num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 5e5}
    (tmp_path / "config.json").write_text(json.dumps(config))
    index = {"weight_map": {name: path.name for name in tensors}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    for place in (path, tmp_path, tmp_path / "model.safetensors.index.json"):
        assert oracle.nmse(run(place, prefix), want) < 1e-9

    window = {**config, "sliding_window": 4096, "use_sliding_window": False}
    (tmp_path / "config.json").write_text(json.dumps(window))
    assert oracle.nmse(run(path, prefix), want) < 1e-9
    (tmp_path / "config.json").write_text(json.dumps({**window, "use_sliding_window": True}))
    with pytest.raises(vkattn.UnsupportedError, match="sliding_window is not supported"):
        run(path, prefix)
    config_says(tmp_path / "config.json", config, lambda: run(path, prefix))

    config = {**config, "rope_theta": None, "rope_parameters": {"rope_theta": 5e5}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert oracle.nmse(run(path, prefix), want) < 1e-9
    config["rope_scaling"] = config.pop("rope_parameters") | {"rope_type": "llama3"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(vkattn.FileError, match="type 'llama3': expected factor"):
        run(path, prefix)


def test_bfloat16_checkpoint(device, rng, tmp_path):
    (x,) = weights(rng, (2, 5, 12))
    w, tensors = llama(rng, "")
    halves = {name: (t.view(np.uint32) >> 16).astype(np.uint16) for name, t in tensors.items()}
    path = write_safetensors(tmp_path / "bf16.safetensors", halves)
    rounded = [(h.astype(np.uint32) << 16).view(np.float32) for h in halves.values()]
    want, _ = expected(x, 4, *((m, 0) for m in rounded), n_kv_head=2)
    for dtype, limit in ((None, 1e-4), ("f32", 1e-10)):
        layer = vkattn.Layer.from_safetensors(
            path, n_head=4, rope=False, dtype=dtype, device=device
        )
        assert layer.dtype == (dtype or "bf16")
        assert oracle.nmse(layer(x), want) < limit


def test_own_files(device, rng, tmp_path):
    (x,) = weights(rng, (5, 2, 12))
    w, tensors = llama(rng, "")
    config = {"num_heads": 4, "num_kv_heads": 2, "layout": "sbd", "rope": {"base": 100, "dim": 4}}
    config["causal"] = True
    path = write_safetensors(
        tmp_path / "own.safetensors", {**tensors, "query": x}, {"config": json.dumps(config)}
    )
    layer = vkattn.Layer.from_safetensors(path, device=device)
    assert layer.layout == "sbd"
    for given, visible in (({}, oracle.causal(5, 5)), ({"causal": False}, None)):
        want, _ = expected(
            x.swapaxes(0, 1),
            4,
            *((m, 0) for m in w),
            n_kv_head=2,
            rope_base=100.0,
            visible=visible,
        )
        assert oracle.nmse(layer(x, **given).swapaxes(0, 1), want) < 1e-9


def test_what_a_layer_has_no_place_for(device, rng, tmp_path):
    _, tensors = llama(rng)
    tensors["model.layers.0.self_attn.q_norm.weight"] = np.ones(4, np.float32)
    path = write_safetensors(tmp_path / "qwen.safetensors", tensors)
    with pytest.raises(vkattn.UnsupportedError, match="q_norm.weight has no place"):
        vkattn.Layer.from_safetensors(path, "model.layers.0.self_attn.", n_head=4, rope=False)
    with pytest.raises(vkattn.InvalidError, match="has layers at .model.layers.0.self_attn.$"):
        vkattn.Layer.from_safetensors(path, "model.layers.1.self_attn.")


@pytest.mark.parametrize("prefix", ["", "a."])
def test_tensors_that_would_be_left_out(device, rng, tmp_path, prefix):
    """Refused with a prefix and without one; an output projection may have two names."""
    (x,) = weights(rng, (2, 3, 8))
    layer = {f"{prefix}{n}_proj.weight": rng.standard_normal((8, 8)).astype("f4") for n in "qkvo"}

    def run(tensors):
        path = write_safetensors(tmp_path / "l.safetensors", tensors)
        return vkattn.Layer.from_safetensors(path, prefix, n_head=2, rope=False, device=device)(x)

    want = run(layer)
    other = dict(layer)
    other[f"{prefix}out_proj.weight"] = other.pop(f"{prefix}o_proj.weight")
    np.testing.assert_array_equal(run(other), want)
    for name, shape in (
        ("q_norm.weight", (4,)),
        ("sinks", (2,)),
        ("bias_k", (1, 1, 8)),
        ("q_proj.lora_A.weight", (2, 8)),
        ("q_proj.weight_scale", (8,)),
        ("out_proj.bias", (8,)),
        ("out_proj.weight", (8, 8)),
        ("dense.weight", (8, 8)),
        ("inner_attn_ln.weight", (8,)),
        ("q_proj.bias2", (8,)),
    ):
        with pytest.raises(vkattn.UnsupportedError, match=f"{prefix}{name} has no place in a Layer"):
            run({**layer, f"{prefix}{name}": np.full(shape, 2, "f4")})
    if not prefix:  # what case files have besides
        np.testing.assert_array_equal(run({**layer, "query": x, "expect.output": x}), want)


def entry(**change):
    return {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64], **change}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{",
        b'{"q_proj.weight": 3}',
        b'{"a": 1, "a": 1}',
        b"\xff\xfe",
        b"[" * 100000,
        json.dumps({"q_proj.weight": entry(shape=[-4, 4])}).encode(),
        json.dumps({"q_proj.weight": entry(shape=[2**40, 2**40])}).encode(),
        json.dumps({"q_proj.weight": entry(shape="44")}).encode(),
        json.dumps({"q_proj.weight": entry(data_offsets=[0, 60])}).encode(),
        json.dumps({"q_proj.weight": entry(data_offsets=[64, 128])}).encode(),
        json.dumps({"q_proj.weight": entry(data_offsets=[True, 65])}).encode(),
        json.dumps({"q_proj.weight": entry(dtype="F8_E4M3")}).encode(),
        json.dumps({"q_proj.weight": entry(dtype=["F32"])}).encode(),
        json.dumps({"__metadata__": 4, "q_proj.weight": entry()}).encode(),
    ],
)
def test_malformed_files(tmp_path, header):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    with pytest.raises(vkattn.VkattnError, match="bad.safetensors"):
        vkattn.Layer.from_safetensors(path, n_head=1, rope=False)


def test_unreadable_files(tmp_path):
    for size in (0, 7, 8):
        path = tmp_path / "short.safetensors"
        path.write_bytes(b"\xff" * size)
        with pytest.raises(vkattn.FileError, match="short.safetensors"):
            vkattn.Layer.from_safetensors(path)
    for path in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(vkattn.FileError, match="safetensors: cannot open: "):
            vkattn.Layer.from_safetensors(path)
    index = tmp_path / "model.safetensors.index.json"
    for text in ("", "[]", '{"weight_map": {"q_proj.weight": "../x"}}', '{"weight_map": {}}'):
        index.write_text(text)
        with pytest.raises(vkattn.VkattnError, match="index.json"):
            vkattn.Layer.from_safetensors(index, "")
