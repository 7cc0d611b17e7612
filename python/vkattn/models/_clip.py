"""Vectors of images and texts: CLIP and SigLIP."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np

from .._device import Tensor
from .._errors import InvalidError
from .._numbers import whole as whole_number
from ._encoder_runs import AT_ONCE, ROWS
from ._graph import TIMEOUT, Graph, Linear, Recorded
from ._layers import Layer, Layers, Sizes, Words, norm_of
from ._keys import Keys
from ._source import FolderWeights, Weights
from ._text import Text, check_texts, read_ids
from ._vision import ImageEncoder, Images, Recording, run_images

_LAYER = Layer(
    at="encoder.layers.{}.",
    qkv=tuple(f"self_attn.{x}_proj" for x in "qkv"),
    o="self_attn.out_proj",
    attn_norm="layer_norm1",
    up=("mlp.fc1",),
    down="mlp.fc2",
    norm="layer_norm2",
    norm_first=True,
)


class Pair(NamedTuple):
    """A family of encoders of images and texts."""

    images: Images
    words: Words
    texts: tuple[int, int, int, int]  # sizes where config.json states none
    n_token: int
    length: int
    end: int | None = None  # the id whose row is the text's; else the last one's
    pad: int | None = None  # a str is filled up to `length` with it
    causal: bool = False
    head: str = "text_projection"
    head_bias: bool = False
    image_head: str = ""  # a product of row 0; else attention of a learnt query over the rows


_CLIP_WORDS = Words(activation_default="quick_gelu", epsilon_default=1e-5)
_SIGLIP_WORDS = Words(activation_default="gelu_pytorch_tanh", epsilon_default=1e-6)
_IMAGES = Images(
    prefix="vision_model.",
    layer=_LAYER,
    words=_CLIP_WORDS,
    patch=32,
    first=("embeddings.class_embedding",),
    squares="embeddings.patch_embedding",
    squares_bias=False,
    positions="embeddings.position_embedding.weight",
    first_norm="pre_layrnorm",
    norm="post_layernorm",
    inert_keys=(),
)
FAMILIES = {
    "clip": Pair(
        images=_IMAGES,
        words=_CLIP_WORDS,
        texts=(512, 12, 8, 2048),
        n_token=49408,
        length=77,
        end=49407,
        causal=True,
        image_head="visual_projection",
    ),
    "siglip": Pair(
        images=_IMAGES._replace(
            words=_SIGLIP_WORDS, patch=16, first=(), squares_bias=True, first_norm=""
        ),
        words=_SIGLIP_WORDS,
        texts=(768, 12, 12, 3072),
        n_token=32000,
        length=64,
        pad=1,
        head="text_model.head",
        head_bias=True,
    ),
}


def _part(keys: Keys, key: str) -> Keys:
    """An object of config.json with keys of its own."""
    keys.only(f"{key}_dict")  # what old versions of transformers gave precedence
    section = Keys(keys.get(key, dict, {}), f"{keys.where}: {key}")
    section.only("vision_use_head", True)
    section.left -= {"projection_dim", "initializer_factor", "dropout"}
    return section


class _Query:
    """Attention of a learnt query over the rows of an image, and a feed-forward network."""

    def __init__(self, weights: Weights, at: str, sizes: Sizes) -> None:
        width = sizes.width
        self.sizes = sizes
        self.probe = weights.table(f"{at}probe", 1, width).reshape(width)
        matrix = weights.matrix(f"{at}attention.in_proj_weight", 3 * width, width, product=True)
        bias = weights.vector(f"{at}attention.in_proj_bias", 3 * width)
        both = ((0, width), (width, 2 * width))
        self.q, self.kv = (Linear(matrix.slice(0, *x), bias.slice(0, *x)) for x in both)
        self.o = weights.linear(f"{at}attention.out_proj", width, width)
        self.norm = norm_of(weights, f"{at}layernorm", sizes, False, True)
        self.up = weights.linear(f"{at}mlp.fc1", sizes.inner, width)
        self.down = weights.linear(f"{at}mlp.fc2", width, sizes.inner)

    def add(self, graph: Graph, rows: Tensor) -> Tensor:
        """[batch][width] of the rows [batch][n][width]."""
        width, n_head, batch, plan = self.sizes.width, self.sizes.n_head, graph.batch, graph.plan
        probe = self.probe.strided(0, (batch, 1, width), (0, 0, 1))
        q, context = graph.linear(probe, self.q), graph.device.empty((batch, 1, width))
        k, v = graph.split(graph.linear(rows, self.kv), width, width)
        one = [
            x.reshape(batch, 1, n_head, width // n_head).permute(0, 2, 1, 3) for x in (q, context)
        ]
        plan.attention(one[0], graph.heads(k, n_head), graph.heads(v, n_head), one[1])
        x = graph.linear(context, self.o).reshape(batch, width)
        y = graph.device.empty((batch, width))
        plan.norm(x, y, **self.norm)
        inner = graph.linear(y, self.up)
        plan.activation(inner, inner, **self.sizes.activation)
        graph.residual(inner, self.down, x)
        return x


class Clip:
    """CLIPModel or SiglipModel. See `vkattn.models.load`.

    images: float32 [n][3][size][size] as the model's image processor of transformers makes them.
    Vectors of images and texts have length 1; `scale` times their products plus `bias` are the
    logits of transformers.
    """

    def __init__(self, weights: FolderWeights, keys: Keys, kind: str, text: Text) -> None:
        self.device = weights.device
        family = self.family = FAMILIES[kind]
        words, seen = _part(keys, "text_config"), _part(keys, "vision_config")
        for key in ("logit_scale_init_value", "initializer_factor"):
            keys.left.discard(key)
        self.encoder = ImageEncoder(weights, seen, family.images)
        width, at = self.encoder.sizes.width, self.encoder.prefix
        self._read_texts(weights, keys, words, text)
        self.query = None
        if family.image_head:
            self.head = weights.linear(family.image_head, self.width, width, bias=False)
            self.scale, self.bias = float(np.exp(weights.scalar("logit_scale"))), 0.0
        else:
            self.query = _Query(weights, f"{at}head.", self.encoder.sizes)
            self.scale = float(np.exp(weights.numbers("logit_scale", 1)[0]))
            self.bias = weights.numbers("logit_bias", 1)[0]
        weights.finish(lambda name: name.endswith(".embeddings.position_ids"))
        self.unused = weights.unused
        keys.left |= words.left | seen.left
        self._images = Recorded(self._record_images)
        self._texts = Recorded(self._record_texts)

    def _read_texts(self, weights: Weights, above: Keys, keys: Keys, text: Text) -> None:
        family = self.family
        sizes = Sizes.of(keys, _LAYER, family.words, family.texts)
        at = "text_model."
        if family.image_head:
            self.width = above.size("projection_dim", 512)
        else:
            self.width = keys.size("projection_size", sizes.width)
        self.n_token = keys.size("vocab_size", family.n_token)
        self.max_length = text.most = keys.size("max_position_embeddings", family.length)
        self.end = None if family.end is None else keys.get("eos_token_id", int, family.end)
        self.pad = None if family.pad is None else keys.get("pad_token_id", int, family.pad)
        self.text = text
        self.words = weights.matrix(
            f"{at}embeddings.token_embedding.weight", self.n_token, sizes.width, product=True
        )
        self.word_positions = weights.matrix(
            f"{at}embeddings.position_embedding.weight", self.max_length, sizes.width
        )
        self.word_layers = Layers(weights, keys, at, _LAYER, sizes)
        self.word_norm = norm_of(weights, f"{at}final_layer_norm", sizes, False, True)
        self.word_head = weights.linear(family.head, self.width, sizes.width, bias=family.head_bias)

    def _record_images(self, batch: int) -> Recording:
        graph = Graph(self.device, batch, self.encoder.n_row)
        given, x = self.encoder.add(graph)
        if self.query:
            graph.plan.norm(x, x, **self.encoder.norm)
            vector = self.query.add(graph, x)
        else:
            first = x.slice(1, 0, 1).reshape(batch, x.shape[2])
            y = self.device.empty(first.shape)
            graph.plan.norm(first, y, **self.encoder.norm)
            vector = graph.linear(y, self.head)
        graph.unit(vector)
        return Recording(graph, given, vector=vector)

    def _record_texts(self, batch: int, rows: int) -> _TextRecording:
        return _TextRecording(self, batch, rows)

    def embed_images(
        self, images: Any, *, at_once: int = AT_ONCE, timeout: float = TIMEOUT
    ) -> np.ndarray:
        """A vector of each image, float32 [n][width]. at_once: images of a run."""
        patches = self.encoder.patches
        return run_images(patches, self._images, images, "vector", at_once, timeout)

    def embed_texts(
        self,
        texts: Sequence[str] | Sequence[Sequence[int]],
        *,
        at_once: int = AT_ONCE,
        timeout: float = TIMEOUT,
    ) -> np.ndarray:
        """A vector of each text, float32 [n][width]. A text is a str, cut to max_length ids, or ids
        with those that begin and end it. at_once: texts of a run."""
        ids = [self._ids_of(text, f"texts[{i}]") for i, text in enumerate(check_texts(texts))]
        at_once = whole_number(at_once, "at_once", 1)
        result = np.empty((len(ids), self.width), np.float32)
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        at_once = min(at_once, len(ids))
        for start in range(0, len(order), at_once or 1):
            indices = order[start : start + at_once]
            rows = min(-(-len(ids[indices[0]]) // ROWS) * ROWS, self.max_length)
            recording = self._texts.get(at_once, rows)
            result[indices] = recording.run([ids[i] for i in indices], timeout)
        return result

    def encode(self, text: str) -> list[int]:
        """The ids of a text, cut to max_length, and filled up to it for SigLIP."""
        ids = self.text.encode(text)
        return ids if self.pad is None else ids + [self.pad] * (self.max_length - len(ids))

    def _ids_of(self, text: Any, what: str) -> list[int]:
        ids = read_ids(text, what, self.encode, self.n_token, self.max_length)
        if self.end not in (None, 2) and self.end not in ids:
            raise InvalidError(f"{what}: expected the id {self.end}, which ends a text")
        return ids

    def end_of(self, ids: list[int]) -> int:
        """Which row is the text's vector. Old files of CLIP say 2, and mean the largest id."""
        if self.end is None:
            return len(ids) - 1
        return ids.index(max(ids) if self.end == 2 else self.end)


class _TextRecording:
    """Up to `batch` texts of up to `rows` ids."""

    def __init__(self, model: Clip, batch: int, rows: int) -> None:
        device, width = model.device, model.word_layers.sizes.width
        graph = Graph(device, batch, rows)
        self.model, self.plan, self.rows = model, graph.plan, rows
        self.ids = device.empty((batch, rows), "i32")
        self.ends = device.empty((batch,), "i32")  # rows of all texts
        x = graph.gather(model.words, self.ids)
        self.plan.add(x, model.word_positions.slice(0, 0, rows), x)
        self.lengths = None
        if model.family.causal:  # no row of a text sees what stands behind it
            model.word_layers.add(graph, x, causal=True)
        else:
            self.lengths = device.empty((batch,), "i32")
            model.word_layers.add(graph, x, kv_length=self.lengths)
        last = graph.gather(x.reshape(batch * rows, width), self.ends)
        self.plan.norm(last, last, **model.word_norm)
        self.vector = graph.linear(last, model.word_head)
        graph.unit(self.vector)
        self.plan.finish()

    def run(self, texts: list[list[int]], timeout: float) -> np.ndarray:
        ids = np.zeros(self.ids.shape, np.int32)
        ends = np.zeros(self.ends.shape, np.int32)
        for b, text in enumerate(texts):
            ids[b, : len(text)] = text
            ends[b] = b * self.rows + self.model.end_of(text)
        if self.lengths:
            lengths = [len(text) for text in texts] + [0] * (len(ids) - len(texts))
            self.lengths.write(np.array(lengths, np.int32))
        self.ids.write(ids)
        self.ends.write(ends)
        self.plan.run(timeout)
        return self.vector.read()[: len(texts)]
