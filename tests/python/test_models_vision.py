"""ViT and CLIP with random weights against double, and against transformers where that is
installed."""

import math
import warnings

import models_oracle as tiny
import numpy as np
import oracle
import pytest

import vkattn
import vkattn.models

WIDTH, LAYERS, HEADS, INNER, TOKENS = 32, 2, 4, 48, 60
CHANNELS, SIZE, PATCH, END = 3, 12, 4, 59
PATCHES = (SIZE // PATCH) ** 2

VIT = {
    "model_type": "vit",
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "image_size": SIZE,
    "patch_size": PATCH,
    "num_channels": CHANNELS,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "qkv_bias": True,
    "id2label": {"0": "cat", "1": "dog", "2": "fish"},
    "label2id": {"cat": 0, "dog": 1, "fish": 2},
}
_PART = {
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
}
CLIP = {
    "model_type": "clip",
    "projection_dim": 24,
    "logit_scale_init_value": 2.6592,
    "text_config": {
        **_PART,
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "vocab_size": TOKENS,
        "max_position_embeddings": 40,
        "bos_token_id": 58,
        "eos_token_id": END,
    },
    "vision_config": {
        **_PART,
        "hidden_size": 40,
        "intermediate_size": INNER,
        "image_size": SIZE,
        "patch_size": PATCH,
    },
}


# ---- Checkpoints --------------------------------------------------------------------------------


def with_biases(shapes):
    made = {}
    for name, shape in shapes.items():
        made[f"{name}.weight"] = shape
        made[f"{name}.bias"] = shape[:1]
    return made


def vit_shapes():
    at = "vit.embeddings."
    shapes = {
        f"{at}cls_token": (1, 1, WIDTH),
        f"{at}position_embeddings": (1, 1 + PATCHES, WIDTH),
    }
    linears = {f"{at}patch_embeddings.projection": (WIDTH, CHANNELS, PATCH, PATCH)}
    for i in range(LAYERS):
        at = f"vit.encoder.layer.{i}."
        for x in ("query", "key", "value"):
            linears[f"{at}attention.attention.{x}"] = (WIDTH, WIDTH)
        linears[f"{at}attention.output.dense"] = (WIDTH, WIDTH)
        linears[f"{at}layernorm_before"] = linears[f"{at}layernorm_after"] = (WIDTH,)
        linears[f"{at}intermediate.dense"] = (INNER, WIDTH)
        linears[f"{at}output.dense"] = (WIDTH, INNER)
    linears["vit.layernorm"] = (WIDTH,)
    linears["classifier"] = (3, WIDTH)
    return {**shapes, **with_biases(linears)}


def clip_shapes():
    words, seen, vector = WIDTH, 40, CLIP["projection_dim"]
    shapes = {
        "logit_scale": (),
        "text_model.embeddings.token_embedding.weight": (TOKENS, words),
        "text_model.embeddings.position_embedding.weight": (40, words),
        "text_projection.weight": (vector, words),
        "vision_model.embeddings.class_embedding": (seen,),
        "vision_model.embeddings.patch_embedding.weight": (seen, CHANNELS, PATCH, PATCH),
        "vision_model.embeddings.position_embedding.weight": (1 + PATCHES, seen),
        "visual_projection.weight": (vector, seen),
    }
    linears = {"text_model.final_layer_norm": (words,)}
    linears["vision_model.pre_layrnorm"] = linears["vision_model.post_layernorm"] = (seen,)
    for model, width in (("text", words), ("vision", seen)):
        for i in range(LAYERS):
            at = f"{model}_model.encoder.layers.{i}."
            for x in ("q_proj", "k_proj", "v_proj", "out_proj"):
                linears[f"{at}self_attn.{x}"] = (width, width)
            linears[f"{at}layer_norm1"] = linears[f"{at}layer_norm2"] = (width,)
            linears[f"{at}mlp.fc1"] = (INNER, width)
            linears[f"{at}mlp.fc2"] = (width, INNER)
    return {**shapes, **with_biases(linears)}


def weights(seed, shapes):
    scalars = {k for k, shape in shapes.items() if not shape}
    made = tiny.matrices(
        np.random.default_rng(seed), {k: x for k, x in shapes.items() if k not in scalars}
    )
    return {**made, **{k: np.full((), 2.5, np.float32) for k in scalars}}


# ---- Mathematics --------------------------------------------------------------------------------


def norm(t, name, rows, epsilon):
    return np.array(
        [tiny.layer_norm(x, t[f"{name}.weight"], t[f"{name}.bias"], epsilon) for x in rows]
    )


def linear(t, name, rows):
    product = rows @ t[f"{name}.weight"].astype(np.float64).T
    return product + t[f"{name}.bias"] if f"{name}.bias" in t else product


def quick_gelu(x):
    return x / (1 + np.exp(-1.702 * x))


def patches_of(t, name, image):
    """A convolution, a square at a time."""
    weight = t[f"{name}.weight"].astype(np.float64)
    rows = []
    for y in range(0, SIZE, PATCH):
        for x in range(0, SIZE, PATCH):
            rows.append((weight * image[:, y : y + PATCH, x : x + PATCH]).sum(axis=(1, 2, 3)))
    return np.array(rows) + t.get(f"{name}.bias", 0.0)


def layers(t, at, names, rows, act, epsilon, causal=False):
    qkv, o, first, second, up, down = names
    for i in range(LAYERS):
        here = at.format(i)
        y = norm(t, here + first, rows, epsilon)
        q, k, v = (linear(t, here + x, y).reshape(len(rows), HEADS, -1) for x in qkv)
        new = []
        for r in range(len(rows)):
            seen = r + 1 if causal else len(rows)
            heads = [
                tiny.mix(q[r, h], k[:seen, h], v[:seen, h], 1 / math.sqrt(q.shape[2]))
                for h in range(HEADS)
            ]
            new.append(np.concatenate(heads))
        rows = rows + linear(t, here + o, np.array(new))
        y = norm(t, here + second, rows, epsilon)
        rows = rows + linear(t, here + down, act(linear(t, here + up, y)))
    return rows


VIT_NAMES = (
    [f"attention.attention.{x}" for x in ("query", "key", "value")],
    "attention.output.dense",
    "layernorm_before",
    "layernorm_after",
    "intermediate.dense",
    "output.dense",
)
CLIP_NAMES = (
    [f"self_attn.{x}_proj" for x in "qkv"],
    "self_attn.out_proj",
    "layer_norm1",
    "layer_norm2",
    "mlp.fc1",
    "mlp.fc2",
)


def vit_rows(t, image):
    at = "vit.embeddings."
    patches = patches_of(t, f"{at}patch_embeddings.projection", image)
    rows = np.concatenate([t[f"{at}cls_token"][0].astype(np.float64), patches])
    rows = rows + t[f"{at}position_embeddings"][0]
    rows = layers(t, "vit.encoder.layer.{}.", VIT_NAMES, rows, tiny.gelu, 1e-12)
    return norm(t, "vit.layernorm", rows, 1e-12)


def unit(x):
    return x / math.sqrt(x @ x)


def clip_image(t, image):
    at = "vision_model."
    patches = patches_of(t, f"{at}embeddings.patch_embedding", image)
    first = t[f"{at}embeddings.class_embedding"].astype(np.float64)
    rows = np.concatenate([first[None], patches])
    rows = rows + t[f"{at}embeddings.position_embedding.weight"]
    rows = norm(t, f"{at}pre_layrnorm", rows, 1e-5)
    rows = layers(t, f"{at}encoder.layers.{{}}.", CLIP_NAMES, rows, quick_gelu, 1e-5)
    return unit(linear(t, "visual_projection", norm(t, f"{at}post_layernorm", rows[:1], 1e-5))[0])


def clip_text(t, ids, end):
    at = "text_model."
    rows = t[f"{at}embeddings.token_embedding.weight"][ids].astype(np.float64)
    rows = rows + t[f"{at}embeddings.position_embedding.weight"][: len(ids)]
    rows = layers(t, f"{at}encoder.layers.{{}}.", CLIP_NAMES, rows, quick_gelu, 1e-5, causal=True)
    last = norm(t, f"{at}final_layer_norm", rows[end : end + 1], 1e-5)
    return unit(linear(t, "text_projection", last)[0])


# ---- Tests --------------------------------------------------------------------------------------


def load(folder, device):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return vkattn.models.load(folder, device=device)


@pytest.fixture(scope="module")
def images():
    shape = 5, CHANNELS, SIZE, SIZE
    return np.random.default_rng(4).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def vit(device, tmp_path_factory):
    """The loaded model, its tensors and its folder."""
    tensors = weights(31, vit_shapes())
    folder = tiny.write_folder(tmp_path_factory.mktemp("vit"), VIT, tensors)
    return load(folder, device), tensors, folder


@pytest.fixture(scope="module")
def clip(device, tmp_path_factory):
    tensors = weights(32, clip_shapes())
    folder = tiny.write_folder(tmp_path_factory.mktemp("clip"), CLIP, tensors)
    return load(folder, device), tensors, folder


TEXTS = [
    [58, 3, 17, 9, END],
    [58, END],
    [58, 5, END, END, 4],  # the first one counts
    [58, *range(38), END],
    [58, *range(20, 50), END],  # in the first rows of a recording of 32 more than it has
]


def test_vit(vit, images):
    model, tensors, _ = vit
    assert model.unused == [] and model.labels == ["cat", "dog", "fish"]
    assert all(len(block.qkv) == 1 for block in model.encoder.layers.blocks)
    want = np.array([vit_rows(tensors, x) for x in images])
    got = model.encode(images)
    assert got.shape == (5, 1 + PATCHES, WIDTH)
    assert oracle.nmse(got, want) < 1e-11
    assert oracle.nmse(model.logits(images), linear(tensors, "classifier", want[:, 0])) < 1e-11
    for at_once in (1, 2, 3):  # the last run is not full
        assert np.array_equal(model.encode(images, at_once=at_once), got)


def test_vit_alone(device, images, tmp_path):
    """Without a head that classifies, but with a pooler, without biases of q, k and v, in float16."""
    tensors = {k.removeprefix("vit."): x for k, x in weights(33, vit_shapes()).items()}
    del tensors["classifier.weight"], tensors["classifier.bias"]
    for name in [k for k in tensors if ".attention.attention." in k and k.endswith(".bias")]:
        del tensors[name]
    pooler = {"pooler.dense.weight": (WIDTH, WIDTH), "pooler.dense.bias": (WIDTH,)}
    tensors.update(tiny.matrices(np.random.default_rng(34), pooler))
    half = {k: x.astype(np.float16) for k, x in tensors.items()}
    config = {k: x for k, x in VIT.items() if k not in ("id2label", "label2id")}
    model = load(tiny.write_folder(tmp_path, {**config, "qkv_bias": False}, half), device)
    assert model.unused == ["pooler.dense.bias", "pooler.dense.weight"]
    rounded = {f"vit.{k}": x.astype(np.float32) for k, x in half.items()}
    want = np.array([vit_rows(rounded, x) for x in images])
    assert oracle.nmse(model.encode(images), want) < 1e-9
    with pytest.raises(vkattn.InvalidError, match="no head"):
        model.logits(images)


def test_clip(clip, images):
    model, tensors, _ = clip
    assert model.unused == [] and model.scale == pytest.approx(math.exp(2.5))
    want = np.array([clip_image(tensors, x) for x in images])
    got = model.embed_images(images)
    assert oracle.nmse(got, want) < 1e-11
    assert np.array_equal(model.embed_images(images, at_once=2), got)
    want = np.array([clip_text(tensors, ids, ids.index(END)) for ids in TEXTS])
    got = model.embed_texts(TEXTS)
    assert got.shape == (len(TEXTS), CLIP["projection_dim"])
    assert oracle.nmse(got, want) < 1e-11
    assert oracle.nmse(model.embed_texts(TEXTS, at_once=2), want) < 1e-11
    assert model.embed_texts([]).shape == (0, CLIP["projection_dim"])


def test_clip_old(device, clip, tmp_path):
    """A file whose eos_token_id is 2: the largest id ends a text. It has row numbers, too."""
    words = {**CLIP["text_config"], "eos_token_id": 2, "frobnicate": 1}
    tensors = {**clip[1], "text_model.embeddings.position_ids": np.arange(40)[None]}
    folder = tiny.write_folder(tmp_path, {**CLIP, "text_config": words}, tensors)
    with pytest.warns(UserWarning, match="'frobnicate'"):
        model = vkattn.models.load(folder, device=device)
    assert model.unused == ["text_model.embeddings.position_ids"]
    ids = [58, 7, END, 3]
    assert oracle.nmse(model.embed_texts([ids])[0], clip_text(clip[1], ids, 2)) < 1e-11


@pytest.mark.parametrize("family", ["vit", "clip"])
def test_transformers(family, vit, clip, device, images, tmp_path):
    reason = "transformers WITH torch IS NOT INSTALLED: VIT AND CLIP WERE NOT COMPARED WITH IT"
    torch = pytest.importorskip("torch", reason=reason)
    auto = pytest.importorskip("transformers", reason=reason)
    model, _, folder = vit if family == "vit" else clip
    made = auto.ViTForImageClassification if family == "vit" else auto.CLIPModel
    their = made.from_pretrained(folder, attn_implementation="eager").eval()
    their.save_pretrained(tmp_path)
    again = load(tmp_path, device)
    with torch.no_grad():
        if family == "vit":
            want = their(torch.tensor(images)).logits.numpy()
            got, saved = model.logits(images), again.logits(images)
        else:
            ids = [x + [0] * (40 - len(x)) for x in TEXTS]
            out = their(input_ids=torch.tensor(ids), pixel_values=torch.tensor(images))
            want = out.logits_per_image.numpy()
            got = model.scale * model.embed_images(images) @ model.embed_texts(TEXTS).T
            saved = again.scale * again.embed_images(images) @ again.embed_texts(TEXTS).T
    assert oracle.nmse(got, want) < 1e-9
    assert np.array_equal(got, saved)


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"num_attention_heads": 5}, "num_attention_heads: 5 do not divide 32"),
        ({"patch_size": 5}, "patch_size: 5 does not divide 12"),
        ({"image_size": [12, 12]}, "image_size: expected int"),
        ({"hidden_act": "x"}, "hidden_act 'x' is not supported"),
        ({"num_channels": 1}, r"projection.weight: expected \[32, 1, 4, 4\], got \[32, 3, 4, 4\]"),
        ({"num_hidden_layers": 1}, "tensor vit.encoder.layer.1.* is not known"),
        ({"id2label": {"1": "x"}}, "id2label: there is no '0'"),
        ({"qkv_bias": False}, "tensor vit.encoder.layer.0.*bias is not known"),
    ],
)
def test_refused(vit, device, tmp_path, change, sentence):
    folder = tiny.write_folder(tmp_path, {**VIT, **change}, vit[1])
    with pytest.raises(vkattn.VkattnError, match=sentence):
        vkattn.models.load(folder, device=device)


def test_clip_refused(clip, device, tmp_path):
    for change, sentence in (
        ({"text_config_dict": {"hidden_size": 4}}, "text_config_dict .* is not supported"),
        ({"projection_dim": 23}, r"text_projection.weight: expected \[23, 32\]"),
        ({"vision_config": 3}, "vision_config: expected dict"),
        ({"text_config": {"hidden_size": 33}}, "text_config: num_attention_heads: 8 do not"),
    ):
        folder = tiny.write_folder(tmp_path, {**CLIP, **change}, clip[1])
        with pytest.raises(vkattn.VkattnError, match=sentence):
            vkattn.models.load(folder, device=device)


def test_calls(vit, clip, images):
    for call in (vit[0].encode, vit[0].logits, clip[0].embed_images):
        for wrong in (images[0], images[:, :2], images[:, :, 1:], images[:0], images[None]):
            with pytest.raises(vkattn.InvalidError, match="images: expected"):
                call(wrong)
        with pytest.raises(vkattn.InvalidError, match="at_once"):
            call(images, at_once=0)
    for wrong, sentence in (
        ([[]], "1 to 40 ids, got 0"),
        ([[END], [END] * 41], r"texts\[1\]: expected 1 to 40 ids, got 41"),
        ([[60, END]], "has 60 ids, got 60"),
        ([[3, 4]], "expected the id 59"),
    ):
        with pytest.raises(vkattn.InvalidError, match=sentence):
            clip[0].embed_texts(wrong)
    with pytest.raises(vkattn.InvalidError, match="at_once"):
        clip[0].embed_texts(TEXTS, at_once=0)
