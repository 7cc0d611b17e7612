"""Encoders of images, ViT and CLIP, and CLIP's encoder of texts."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np

from .._config import shown
from .._device import Tensor
from .._errors import FileError, InvalidError
from .._numbers import whole as whole_number
from .._numbers import wholes
from ._encoder import AT_ONCE, ROWS
from ._graph import TIMEOUT, Graph, Linear, Recorded
from ._layers import activation_of
from ._source import FolderWeights, Keys, Weights
from ._text import Text, check_texts

VIT = "vit"
CLIP = "clip"


class _Names(NamedTuple):
    """Tensors of a layer."""

    qkv: tuple[str, ...]
    o: str
    attn_norm: str
    norm: str
    up: str
    down: str


_VIT_NAMES = _Names(
    qkv=tuple(f"attention.attention.{x}" for x in ("query", "key", "value")),
    o="attention.output.dense",
    attn_norm="layernorm_before",
    norm="layernorm_after",
    up="intermediate.dense",
    down="output.dense",
)
_CLIP_NAMES = _Names(
    qkv=tuple(f"self_attn.{x}_proj" for x in "qkv"),
    o="self_attn.out_proj",
    attn_norm="layer_norm1",
    norm="layer_norm2",
    up="mlp.fc1",
    down="mlp.fc2",
)


class _Sizes(NamedTuple):
    width: int
    n_layer: int
    n_head: int
    inner: int
    epsilon: float
    activation: dict[str, Any]  # as Plan.activation takes it
    qkv_bias: bool

    @classmethod
    def of(cls, keys: Keys, defaults: tuple[int, int, int, int], activation: str) -> _Sizes:
        """defaults: width, layers, heads and width of the feed-forward part."""
        width = keys.size("hidden_size", defaults[0])
        n_head = keys.size("num_attention_heads", defaults[2])
        if width % n_head:
            raise FileError(f"{keys.where}: num_attention_heads: {n_head} do not divide {width}")
        name = keys.get("hidden_act", str, activation)
        known = {"kind": "silu", "alpha": 1.702} if name == "quick_gelu" else None
        return cls(
            width,
            keys.size("num_hidden_layers", defaults[1]),
            n_head,
            keys.size("intermediate_size", defaults[3]),
            keys.positive("layer_norm_eps", 1e-12 if activation == "gelu" else 1e-5),
            known or {"kind": activation_of(keys, "hidden_act", name)},
            keys.get("qkv_bias", bool, True),
        )


class _Block:
    def __init__(self, weights: Weights, at: str, sizes: _Sizes, names: _Names) -> None:
        width, inner, epsilon = sizes.width, sizes.inner, sizes.epsilon
        qkv = [at + x for x in names.qkv]
        self.qkv = weights.linears(qkv, [width] * 3, width, bias=sizes.qkv_bias)
        self.o = weights.linear(at + names.o, width, width)
        self.attn_norm = weights.layer_norm(at + names.attn_norm, width, epsilon)
        self.norm = weights.layer_norm(at + names.norm, width, epsilon)
        self.up = weights.linear(at + names.up, inner, width)
        self.down = weights.linear(at + names.down, width, inner)


class _Tower:
    """Layers that norm what they read, as both encoders of CLIP and that of ViT have them."""

    def __init__(self, weights: Weights, at: str, sizes: _Sizes, names: _Names) -> None:
        self.sizes = sizes
        self.blocks = [_Block(weights, at.format(i), sizes, names) for i in range(sizes.n_layer)]

    def add(self, graph: Graph, x: Tensor, **options: Any) -> None:
        """Changes x, [batch][rows][width]. options: of Plan.attention."""
        sizes, plan = self.sizes, graph.plan
        width = sizes.width
        y, context = graph.make(width), graph.make(width)
        qkv, inner = graph.make(3 * width), graph.make(sizes.inner)
        parts = graph.split(qkv, width, width, width)
        heads = [graph.heads(t, sizes.n_head) for t in (*parts, context)]
        for block in self.blocks:
            plan.norm(x, y, **block.attn_norm)
            graph.linears(y, block.qkv, qkv)
            plan.attention(*heads, **options)
            graph.residual(context, block.o, x)
            plan.norm(x, y, **block.norm)
            graph.linear(y, block.up, inner)
            plan.activation(inner, inner, **sizes.activation)
            graph.residual(inner, block.down, x)


# ---- Images -------------------------------------------------------------------------------------


class _Patches:
    """Rows of an image: one that stands for all of it, then one for each square of pixels."""

    def __init__(self, keys: Keys, image: int, patch: int) -> None:
        self.size = keys.size("image_size", image)
        self.patch = keys.size("patch_size", patch)
        self.channels = keys.size("num_channels", 3)
        if self.size % self.patch:
            raise FileError(f"{keys.where}: patch_size: {self.patch} does not divide {self.size}")
        self.count = (self.size // self.patch) ** 2

    def read(self, weights: Weights, name: str, width: int, *, bias: bool) -> Linear:
        return weights.patches(name, width, self.channels, self.patch, bias=bias)

    def check(self, images: Any) -> np.ndarray:
        array = np.asarray(images, np.float32)
        shape = (self.channels, self.size, self.size)
        if array.ndim != 4 or array.shape[1:] != shape or array.size == 0:
            raise InvalidError(
                f"images: expected [n, {', '.join(map(str, shape))}], got {list(array.shape)}"
            )
        return array

    def rows(self, images: np.ndarray) -> np.ndarray:
        """[n][patches][channels * patch * patch] of [n][channels][size][size]."""
        n, side, patch = len(images), self.size // self.patch, self.patch
        parts = images.reshape(n, self.channels, side, patch, side, patch)
        return np.ascontiguousarray(parts.transpose(0, 2, 4, 1, 3, 5)).reshape(n, self.count, -1)

    def add(
        self, graph: Graph, given: Tensor, by: Linear, first: Tensor, positions: Tensor
    ) -> Tensor:
        """The rows with their positions [batch][1 + patches][width]. first: [width]."""
        width = first.shape[0]
        x = graph.make(width)
        first = first.strided(0, (graph.batch, 1, width), (0, 0, 1))
        graph.plan.activation(first, x.slice(1, 0, 1), "identity")
        graph.linear(given, by, x.slice(1, 1, self.count))
        graph.plan.add(x, positions, x)
        return x


class _Recording:
    """An input, and what a plan makes of it."""

    def __init__(self, graph: Graph, input: Tensor, **outputs: Tensor) -> None:
        self.plan = graph.plan
        self.input = input
        self.outputs = outputs
        self.plan.finish()

    def run(self, given: np.ndarray, timeout: float) -> None:
        """Runs a batch; one that is not full is filled up with zeros."""
        whole = np.zeros(self.input.shape, np.float32)
        whole[: len(given)] = given
        self.input.write(whole)
        self.plan.run(timeout)


def _run_images(
    patches: _Patches, recorded: Recorded, images: Any, output: str, at_once: int, timeout: float
) -> np.ndarray:
    at_once = whole_number(at_once, "at_once", 1)
    array = patches.check(images)
    at_once = min(at_once, len(array))
    parts = []
    for i in range(0, len(array), at_once):
        part = array[i : i + at_once]
        recording = recorded.get(at_once)
        recording.run(patches.rows(part), timeout)
        parts.append(recording.outputs[output].read()[: len(part)])
    return np.concatenate(parts)


class ViT:
    """ViTModel or ViTForImageClassification. See `vkattn.models.load`.

    images: float32 [n][3][size][size] as ViTImageProcessor of transformers makes them.
    """

    def __init__(self, weights: Weights, keys: Keys) -> None:
        self.device = weights.device
        sizes = self.sizes = _Sizes.of(keys, (768, 12, 12, 3072), "gelu")
        self.patches = _Patches(keys, 224, 16)
        self.width = sizes.width
        for key in ("encoder_stride", "pooler_output_size", "pooler_act"):
            keys.left.discard(key)  # of masked images, and of a pooler
        prefix = "vit." if "vit.embeddings.cls_token" in weights else ""
        at = f"{prefix}embeddings."
        rows = 1 + self.patches.count
        self.first = weights.table(f"{at}cls_token", 1, self.width).reshape(self.width)
        self.positions = weights.table(f"{at}position_embeddings", rows, self.width)
        self.embedding = self.patches.read(
            weights, f"{at}patch_embeddings.projection", self.width, bias=True
        )
        self.tower = _Tower(weights, f"{prefix}encoder.layer.{{}}.", sizes, _VIT_NAMES)
        self.norm = weights.layer_norm(f"{prefix}layernorm", self.width, sizes.epsilon)
        self.labels = _labels(keys)
        self.head = None
        if "classifier.weight" in weights:
            self.head = weights.linear("classifier", len(self.labels), self.width)
        weights.finish(lambda name: name.startswith((f"{prefix}pooler.", f"{at}mask_token")))
        self.unused = weights.unused
        self._recorded = Recorded(self._record)

    def _record(self, batch: int) -> _Recording:
        graph = Graph(self.device, batch, 1 + self.patches.count)
        given = self.device.empty((batch, self.patches.count, self.embedding.weight.shape[1]))
        x = self.patches.add(graph, given, self.embedding, self.first, self.positions)
        self.tower.add(graph, x)
        graph.plan.norm(x, x, **self.norm)
        outputs = {"rows": x}
        if self.head:
            first = x.slice(1, 0, 1).reshape(batch, self.width)
            outputs["logits"] = graph.linear(first, self.head)
        return _Recording(graph, given, **outputs)

    def encode(
        self, images: Any, *, at_once: int = AT_ONCE, timeout: float = TIMEOUT
    ) -> np.ndarray:
        """The last rows, float32 [n][1 + patches][width]; row 0 stands for the image. at_once:
        images of a run."""
        return _run_images(self.patches, self._recorded, images, "rows", at_once, timeout)

    def logits(
        self, images: Any, *, at_once: int = AT_ONCE, timeout: float = TIMEOUT
    ) -> np.ndarray:
        """A logit for each image and label, float32 [n][labels]; `labels` has their names."""
        if not self.head:
            raise InvalidError("logits: the model has no head that classifies")
        return _run_images(self.patches, self._recorded, images, "logits", at_once, timeout)


def _labels(keys: Keys) -> list[str]:
    named = keys.get("id2label", dict, {"0": "LABEL_0", "1": "LABEL_1"})
    try:
        return [str(named[str(i)]) for i in range(len(named))]
    except KeyError as error:
        raise FileError(f"{keys.where}: id2label: there is no {error}") from None


# ---- CLIP ---------------------------------------------------------------------------------------


def _part(keys: Keys, key: str) -> Keys:
    """An object of config.json with keys of its own."""
    keys.only(f"{key}_dict")  # what old versions of transformers gave precedence
    return Keys(keys.get(key, dict, {}), f"{keys.where}: {key}")


class Clip:
    """CLIPModel. See `vkattn.models.load`.

    images: float32 [n][3][size][size] as CLIPImageProcessor of transformers makes them. Vectors of
    images and texts have length 1; `scale` times their products are the logits of CLIPModel.
    """

    def __init__(self, weights: FolderWeights, keys: Keys, text: Text) -> None:
        self.device = weights.device
        words, seen = _part(keys, "text_config"), _part(keys, "vision_config")
        for part in (words, seen):
            part.left -= {"projection_dim", "initializer_factor", "dropout"}
        for key in ("logit_scale_init_value", "initializer_factor"):
            keys.left.discard(key)
        self.width = keys.size("projection_dim", 512)
        self._read_texts(weights, words, text)
        self._read_images(weights, seen)
        self.scale = float(np.exp(weights.scalar("logit_scale")))
        weights.finish(lambda name: name.endswith(".embeddings.position_ids"))
        self.unused = weights.unused
        keys.left |= words.left | seen.left
        self._images = Recorded(self._record_images)
        self._texts = Recorded(self._record_texts)

    def _read_texts(self, weights: Weights, keys: Keys, text: Text) -> None:
        sizes = _Sizes.of(keys, (512, 12, 8, 2048), "quick_gelu")
        at = "text_model."
        self.n_token = keys.size("vocab_size", 49408)
        self.max_length = text.most = keys.size("max_position_embeddings", 77)
        self.end = keys.get("eos_token_id", int, 49407)
        self.text = text
        self.words = weights.matrix(
            f"{at}embeddings.token_embedding.weight", self.n_token, sizes.width
        )
        self.word_positions = weights.matrix(
            f"{at}embeddings.position_embedding.weight", self.max_length, sizes.width
        )
        self.word_tower = _Tower(weights, f"{at}encoder.layers.{{}}.", sizes, _CLIP_NAMES)
        self.word_norm = weights.layer_norm(f"{at}final_layer_norm", sizes.width, sizes.epsilon)
        self.word_head = weights.linear("text_projection", self.width, sizes.width, bias=False)

    def _read_images(self, weights: Weights, keys: Keys) -> None:
        sizes = _Sizes.of(keys, (768, 12, 12, 3072), "quick_gelu")
        at = "vision_model."
        self.patches = _Patches(keys, 224, 32)
        self.first = weights.vector(f"{at}embeddings.class_embedding", sizes.width)
        self.embedding = self.patches.read(
            weights, f"{at}embeddings.patch_embedding", sizes.width, bias=False
        )
        self.positions = weights.matrix(
            f"{at}embeddings.position_embedding.weight", 1 + self.patches.count, sizes.width
        )
        self.first_norm = weights.layer_norm(f"{at}pre_layrnorm", sizes.width, sizes.epsilon)
        self.tower = _Tower(weights, f"{at}encoder.layers.{{}}.", sizes, _CLIP_NAMES)
        self.norm = weights.layer_norm(f"{at}post_layernorm", sizes.width, sizes.epsilon)
        self.head = weights.linear("visual_projection", self.width, sizes.width, bias=False)

    def _record_images(self, batch: int) -> _Recording:
        graph = Graph(self.device, batch, 1 + self.patches.count)
        given = self.device.empty((batch, self.patches.count, self.embedding.weight.shape[1]))
        x = self.patches.add(graph, given, self.embedding, self.first, self.positions)
        graph.plan.norm(x, x, **self.first_norm)
        self.tower.add(graph, x)
        first = x.slice(1, 0, 1).reshape(batch, x.shape[2])
        y = self.device.empty(first.shape)
        graph.plan.norm(first, y, **self.norm)
        vector = graph.linear(y, self.head)
        graph.unit(vector)
        return _Recording(graph, given, vector=vector)

    def _record_texts(self, batch: int, rows: int) -> _TextRecording:
        return _TextRecording(self, batch, rows)

    def embed_images(
        self, images: Any, *, at_once: int = AT_ONCE, timeout: float = TIMEOUT
    ) -> np.ndarray:
        """A vector of each image, float32 [n][width]. at_once: images of a run."""
        return _run_images(self.patches, self._images, images, "vector", at_once, timeout)

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
            part = order[start : start + at_once]
            rows = min(-(-len(ids[part[0]]) // ROWS) * ROWS, self.max_length)
            recording = self._texts.get(at_once, rows)
            result[part] = recording.run([ids[i] for i in part], timeout)
        return result

    def _ids_of(self, text: Any, what: str) -> list[int]:
        if isinstance(text, str):
            ids = self.text.encode(text)
        else:
            ids = list(wholes(text, what, -(2**63), 2**63))
        if not 1 <= len(ids) <= self.max_length:
            raise InvalidError(f"{what}: expected 1 to {self.max_length} ids, got {len(ids)}")
        for i in ids:
            if not 0 <= i < self.n_token:
                raise InvalidError(f"{what}: the model has {self.n_token} ids, got {i}")
        if self.end != 2 and self.end not in ids:
            raise InvalidError(f"{what}: expected the id {self.end}, which ends a text")
        return ids

    def end_of(self, ids: list[int]) -> int:
        """Which row is the text's vector. Old files say 2, and mean the largest id."""
        return ids.index(max(ids) if self.end == 2 else self.end)


class _TextRecording:
    """Up to `batch` texts of up to `rows` ids. What stands behind a text no row of it sees."""

    def __init__(self, model: Clip, batch: int, rows: int) -> None:
        device, width = model.device, model.word_tower.sizes.width
        graph = Graph(device, batch, rows)
        self.model, self.plan, self.rows = model, graph.plan, rows
        self.ids = device.empty((batch, rows), "i32")
        self.ends = device.empty((batch,), "i32")  # rows of all texts
        x = graph.gather(model.words, self.ids)
        self.plan.add(x, model.word_positions.slice(0, 0, rows), x)
        model.word_tower.add(graph, x, causal=True)
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
        self.ids.write(ids)
        self.ends.write(ends)
        self.plan.run(timeout)
        return self.vector.read()[: len(texts)]
