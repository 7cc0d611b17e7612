"""Encoders of images by model_type of config.json, and what classifies by their rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._device import Tensor
from .._errors import FileError, InvalidError
from .._numbers import whole as whole_number
from ._encoder_runs import AT_ONCE
from ._graph import TIMEOUT, Graph, Linear, Recorded
from ._heads import labels_of
from ._layers import Layer, Layers, Sizes, Words, is_on, norm_of
from ._keys import Keys
from ._source import Weights


class Head(NamedTuple):
    """A product with a row that stands for the image, and with the mean of those of its squares."""

    name: str
    row: int = 0
    mean: bool = False


class Images(NamedTuple):
    """A family of encoders of images."""

    prefix: str  # of its tensors below a head
    layer: Layer
    words: Words = Words()
    sizes: tuple[int, int, int, int | None] = (768, 12, 12, 3072)  # where config.json states none
    image: int = 224
    patch: int = 16
    first: tuple[str, ...] = ("embeddings.cls_token",)  # rows before those of squares
    squares: str = "embeddings.patch_embeddings.projection"
    squares_bias: bool = True
    positions: str = "embeddings.position_embeddings"
    first_norm: str = ""
    norm: str = "layernorm"
    heads: tuple[tuple[Head, ...], ...] = ((Head("classifier"),),)  # whose logits' mean; or others
    inert: tuple[str, ...] = ("pooler.", "embeddings.mask_token")
    inert_keys: tuple[str, ...] = ("encoder_stride", "pooler_output_size", "pooler_act")
    resolve: Any = lambda keys, family: family  # (Keys, Images) -> Images


_VIT = Images(
    prefix="vit.",
    layer=Layer(
        qkv=tuple(f"attention.attention.{x}" for x in ("query", "key", "value")),
        attn_norm="layernorm_before",
        norm="layernorm_after",
        norm_first=True,
        qkv_bias=("qkv_bias", True),
    ),
)


def _dinov2(keys: Keys, family: Images) -> Images:
    """A feed-forward network with a gate is narrower by a third, and a multiple of 8."""
    inner = int(keys.size("hidden_size", 768) * keys.positive("mlp_ratio", 4))
    if is_on(keys, ("use_swiglu_ffn", False)):
        inner = (int(inner * 2 / 3) + 7) // 8 * 8
        layer = family.layer._replace(up=("mlp.weights_in",), down="mlp.weights_out", gated=True)
        words = family.words._replace(activation="", activation_default="silu")
        keys.left.discard("hidden_act")
        family = family._replace(layer=layer, words=words)
    return family._replace(sizes=(*family.sizes[:3], inner))


FAMILIES = {
    "vit": _VIT,
    "deit": _VIT._replace(
        prefix="deit.",
        first=("embeddings.cls_token", "embeddings.distillation_token"),
        heads=(
            (Head("classifier"),),
            (Head("cls_classifier"), Head("distillation_classifier", row=1)),
        ),
    ),
    "dinov2": _VIT._replace(
        prefix="dinov2.",
        layer=_VIT.layer._replace(
            attn_norm="norm1",
            up=("mlp.fc1",),
            down="mlp.fc2",
            norm="norm2",
            scales=("layer_scale1.lambda1", "layer_scale2.lambda1"),
        ),
        words=Words(inner="", epsilon_default=1e-6),
        patch=14,
        heads=((Head("classifier", mean=True),),),
        inert_keys=(
            *("layerscale_value", "drop_path_rate", "out_features", "out_indices", "stage_names"),
            *("apply_layernorm", "reshape_hidden_states", "use_mask_token"),
        ),
        resolve=_dinov2,
    ),
}


class _Patches:
    """Squares of pixels of an image."""

    def __init__(self, keys: Keys, image: int, patch: int) -> None:
        self.size = keys.size("image_size", image)
        self.patch = keys.size("patch_size", patch)
        self.channels = keys.size("num_channels", 3)
        if self.size % self.patch:
            raise FileError(f"{keys.where}: patch_size: {self.patch} does not divide {self.size}")
        self.count = (self.size // self.patch) ** 2

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
        patches = images.reshape(n, self.channels, side, patch, side, patch)
        return np.ascontiguousarray(patches.transpose(0, 2, 4, 1, 3, 5)).reshape(n, self.count, -1)


class ImageEncoder:
    """Rows that stand for an image, then one for each square of pixels, through layers."""

    def __init__(self, weights: Weights, keys: Keys, family: Images) -> None:
        self.family = family = family.resolve(keys, family)
        prefix = family.prefix
        if f"{prefix}{family.squares}.weight" not in weights:
            prefix = ""
        self.prefix = prefix
        sizes = self.sizes = Sizes.of(keys, family.layer, family.words, family.sizes)
        patches = self.patches = _Patches(keys, family.image, family.patch)
        keys.left -= set(family.inert_keys)
        width = sizes.width
        self.first = [
            _rows_of(weights, prefix + name, 1, width).reshape(width) for name in family.first
        ]
        self.squares = weights.patches(
            prefix + family.squares,
            width,
            patches.channels,
            patches.patch,
            bias=family.squares_bias,
        )
        self.n_row = len(self.first) + patches.count
        self.positions = _rows_of(weights, prefix + family.positions, self.n_row, width)
        self.first_norm = None
        if family.first_norm:
            self.first_norm = norm_of(weights, prefix + family.first_norm, sizes, False, True)
        self.layers = Layers(weights, keys, prefix, family.layer, sizes)
        self.norm = norm_of(weights, prefix + family.norm, sizes, False, True)

    def add(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """The input and the last rows [batch][rows][width], without the norm behind them."""
        patches, plan, width = self.patches, graph.plan, self.sizes.width
        given = graph.device.empty((graph.batch, patches.count, self.squares.weight.shape[1]))
        x = graph.make(width)
        for i, row in enumerate(self.first):
            row = row.strided(0, (graph.batch, 1, width), (0, 0, 1))
            plan.activation(row, x.slice(1, i, 1), "identity")
        graph.linear(given, self.squares, x.slice(1, len(self.first), patches.count))
        plan.add(x, self.positions, x)
        if self.first_norm:
            plan.norm(x, x, **self.first_norm)
        return given, self.layers.add(graph, x)


def _rows_of(weights: Weights, name: str, rows: int, width: int) -> Tensor:
    """What a file has as [1][rows][width], [rows][width], or [width]."""
    rank = len(weights.shape(name)) if name in weights else 3
    if rank == 3:
        return weights.table(name, rows, width)
    return weights.matrix(name, rows, width) if rank == 2 else weights.vector(name, width)


class Recording:
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


def run_images(
    patches: _Patches, recorded: Recorded, images: Any, output: str, at_once: int, timeout: float
) -> np.ndarray:
    at_once = whole_number(at_once, "at_once", 1)
    array = patches.check(images)
    at_once = min(at_once, len(array))
    results = []
    for i in range(0, len(array), at_once):
        some = array[i : i + at_once]
        recording = recorded.get(at_once)
        recording.run(patches.rows(some), timeout)
        results.append(recording.outputs[output].read()[: len(some)])
    return np.concatenate(results)


class ViT:
    """An encoder of images of one of FAMILIES, alone or below a head that classifies. See
    `vkattn.models.load`.

    images: float32 [n][3][size][size] as the model's image processor of transformers makes them.
    """

    def __init__(self, weights: Weights, keys: Keys, kind: str) -> None:
        self.device = weights.device
        self.encoder = encoder = ImageEncoder(weights, keys, FAMILIES[kind])
        self.width = encoder.sizes.width
        self.labels = labels_of(keys)
        self.heads: list[tuple[Head, Linear]] = []
        for heads in encoder.family.heads:
            if f"{heads[0].name}.weight" in weights and not self.heads:
                self.heads = [(x, self._read_head(weights, x)) for x in heads]
        inert = encoder.family.inert
        weights.finish(lambda name: name.removeprefix(encoder.prefix).startswith(inert))
        self.unused = weights.unused
        self._recorded = Recorded(self._record)

    def _read_head(self, weights: Weights, head: Head) -> Linear:
        return weights.linear(head.name, len(self.labels), self.width * (1 + head.mean))

    def _record(self, batch: int) -> Recording:
        graph = Graph(self.device, batch, self.encoder.n_row)
        given, x = self.encoder.add(graph)
        graph.plan.norm(x, x, **self.encoder.norm)
        outputs = {"rows": x}
        if self.heads:
            outputs["logits"] = self._add_heads(graph, x)
        return Recording(graph, given, **outputs)

    def _add_heads(self, graph: Graph, x: Tensor) -> Tensor:
        width, plan, n_first = self.width, graph.plan, len(self.encoder.first)
        logits = self.device.empty((graph.batch, len(self.labels)))
        for i, (head, by) in enumerate(self.heads):
            read = x.slice(1, head.row, 1).reshape(graph.batch, width)
            if head.mean:
                both = self.device.empty((graph.batch, 2 * width))
                plan.activation(read, both.slice(1, 0, width), "identity")
                squares = x.slice(1, n_first, self.encoder.patches.count)
                plan.pool(squares, both.slice(1, width, width))
                read = both
            plan.linear(
                read, by.weight, logits, bias=by.bias, weight_scale=by.scale, accumulate=i > 0
            )
        if len(self.heads) > 1:
            share = np.full(1, 1 / len(self.heads), np.float32)
            plan.multiply(logits, self.device.tensor(share), logits)
        return logits

    def encode(
        self, images: Any, *, at_once: int = AT_ONCE, timeout: float = TIMEOUT
    ) -> np.ndarray:
        """The last rows, float32 [n][rows][width]: those that stand for the image, then one for
        each square. at_once: images of a run."""
        patches = self.encoder.patches
        return run_images(patches, self._recorded, images, "rows", at_once, timeout)

    def logits(
        self, images: Any, *, at_once: int = AT_ONCE, timeout: float = TIMEOUT
    ) -> np.ndarray:
        """A logit for each image and label, float32 [n][labels]; `labels` has their names."""
        if not self.heads:
            raise InvalidError("logits: the model has no head that classifies")
        patches = self.encoder.patches
        return run_images(patches, self._recorded, images, "logits", at_once, timeout)
