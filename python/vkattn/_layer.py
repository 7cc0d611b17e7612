"""Layers."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from . import _extra_rows, _weights
from ._abi import lib, new_struct
from ._arrays import DTYPES, FLOATS, Array, DType, Floats, HostArray, check_dtype
from ._attention import float_array, result_dtype, upload
from ._blocks import ENCODED
from ._cache import Cache
from ._device import Device, Place, Tensor, pick_device
from ._errors import InvalidError, UnsupportedError
from ._linears import HostLinear, Linear, dtype_of, linear_of
from ._numbers import flag, whole
from ._option_table import check_options, takes_options
from ._options import LAYOUTS, AttentionOptions, Rope, asked_scores, choose
from ._plan import DEFAULT_TIMEOUT, Plan

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Options that say which keys a query sees.
_OF_KEYS = ("mask", "key_padding_mask", "kv_length", "query_offset", "causal", "window")


@takes_options
class Layer(_weights.Layer):
    """The weights of one attention layer, uploaded once.

    query [n_head * head_dim][query_dim], key [n_kv_head * head_dim][key_dim],
    value [n_kv_head * value_dim][value_input_dim], output [output_dim][n_head * value_dim]: each a
    weight [out][in] or a pair (weight, bias); without output the concatenated heads are the result.
    All of them may be Tensors, of one type, which an optimiser writes: each run reads what they hold
    then.
    n_kv_head: by default as many as the key's rows give. interleaved: heads lie d * n_head + h in a
    projection's rows, else h * head_dim + d. dtype: storage on the device, by default the weights'.
    quantize: "q8_0" or "q4_0", the weights' blocks on the device, see `vkattn.quantize`; biases
    keep dtype. layout ("bsd" or "sbd") and the options of attention, such as rope=Rope(64) or
    causal=True, are what a run takes where it is not told otherwise. keep_weights: keep a copy on
    the host, with which `Device.recover` brings the layer back.

    bias_kv: a pair [n_kv_head * head_dim], [n_kv_head * value_dim], in the order of the rows of key
    and value, that is appended to the projected keys and values of every batch element, as by
    PyTorch's add_bias_kv. zero_attn: a row of zeros is appended after it, as by add_zero_attn.
    n_extra says how many: scores have n_kv + n_extra columns. Masks of host arrays have n_kv and
    show the appended rows; a mask that is a Tensor has n_kv + n_extra. UnsupportedError with a
    cache, quantize, kv_length, query_offset, causal, window, rope, k_norm and alibi. A run copies
    its keys and values for it.
    """

    def __init__(
        self,
        device: Place = None,
        *,
        n_head: int,
        query: Linear,
        key: Linear,
        value: Linear,
        output: Linear | None = None,
        n_kv_head: int | None = None,
        interleaved: bool = False,
        dtype: DType | None = None,
        layout: str = "bsd",
        keep_weights: bool = False,
        quantize: str | None = None,
        bias_kv: tuple[Array, Array] | None = None,
        zero_attn: bool = False,
        **options: Unpack[AttentionOptions],
    ) -> None:
        device = pick_device(device)
        choose(LAYOUTS, layout, "layout")
        check_options(dict(options))
        dtype = dtype if dtype is None else check_dtype(dtype, "dtype")
        if dtype is not None and dtype not in FLOATS:
            raise InvalidError(f"dtype: expected {', '.join(FLOATS)}, got {dtype}")
        if quantize is not None and quantize not in ENCODED:
            raise InvalidError(f"quantize: expected one of {', '.join(ENCODED)}, got {quantize}")
        given = {"query": query, "key": key, "value": value, "output": output}
        linears = {
            name: linear_of(linear, name, dtype)
            for name, linear in given.items()
            if linear is not None
        }
        self.dtype = dtype_of(list(linears.values()))
        if quantize is not None and self.dtype not in FLOATS:
            raise InvalidError(f"quantize: expected none, as the weights are {self.dtype} already")
        self._set_sizes(linears, n_head, n_kv_head)
        self.layout = layout
        self.options = options
        self._append(linears, bias_kv, zero_attn, quantize)
        self._upload(device, linears, interleaved, keep_weights, quantize)

    def _set_sizes(self, linears: dict[str, HostLinear], n_head: int, n_kv_head: int | None) -> None:
        self.n_head = n_head = whole(n_head, "n_head", 1)
        self.head_dim = linears["query"].heads(n_head, "heads")
        rows = max(linears["key"].rows // self.head_dim, 1)
        self.n_kv_head = rows if n_kv_head is None else whole(n_kv_head, "n_kv_head", 1)
        if linears["key"].heads(self.n_kv_head, "key heads") != self.head_dim:
            raise InvalidError(
                f"key.weight: expected {self.n_kv_head} heads of {self.head_dim} features as the"
                f" query's, got {linears['key'].rows} rows"
            )
        self.value_dim = linears["value"].heads(self.n_kv_head, "key heads")
        self.query_dim = linears["query"].columns
        self.key_dim = linears["key"].columns
        self.value_input_dim = linears["value"].columns
        width = n_head * self.value_dim
        self.output_dim = linears["output"].rows if "output" in linears else width
        if "output" in linears and linears["output"].columns != width:
            raise InvalidError(
                f"output.weight: expected [out][{width}] for {n_head} heads of {self.value_dim}"
                f" features, got {linears['output']._shape()}"
            )

    def _append(
        self,
        linears: dict[str, HostLinear],
        bias_kv: tuple[Array, Array] | None,
        zero_attn: bool,
        quantize: str | None,
    ) -> None:
        self.bias_kv = bias_kv is not None
        self.n_extra = self.bias_kv + flag(zero_attn, "zero_attn")
        if not self.n_extra:
            return
        if quantize is not None:
            raise UnsupportedError("quantize: not supported in a layer with bias_kv or zero_attn")
        if bias_kv is not None and (not isinstance(bias_kv, (tuple, list)) or len(bias_kv) != 2):
            raise TypeError("bias_kv: expected a pair of arrays")
        rows = (None, None) if bias_kv is None else bias_kv
        for name, row in zip(("key", "value"), rows):
            linears[name].widen(row, f"bias_kv of {name}")

    def _upload(
        self,
        device: Device,
        linears: dict[str, HostLinear],
        interleaved: bool,
        keep_weights: bool,
        quantize: str | None,
    ) -> None:
        info = new_struct("vka_layer_info")
        for name in (
            "n_head",
            "n_kv_head",
            "head_dim",
            "value_dim",
            "query_dim",
            "key_dim",
            "value_input_dim",
            "output_dim",
        ):
            setattr(info, name, getattr(self, name))
        if self.n_extra:
            info.key_dim += _extra_rows.COLUMNS
            info.value_input_dim += _extra_rows.COLUMNS
        info.dtype = DTYPES[self.dtype]
        info.quantise = DTYPES[quantize or "f32"]
        info.interleaved = flag(interleaved, "interleaved")
        info.keep_weights = flag(keep_weights, "keep_weights")

        def create(box: Any) -> int:
            for linear in linears.values():
                linear.write(info)
            return int(lib.vka_layer_create(device._core.box[0], info, box))

        self._create(device, "layer", create)

    @staticmethod
    def from_torch(
        module: Any,
        *,
        device: Place = None,
        dtype: DType | None = None,
        keep_weights: bool = False,
        quantize: str | None = None,
    ) -> Layer:
        """The weights of a torch.nn.MultiheadAttention, whose batch_first becomes the layout.

        What depends on the mode is left out: dropout is off, and attention is as need_weights and
        the masks of each call say. key_padding_mask is as there; an attn_mask is the other way
        round: True hides in it, and shows in a mask here. add_bias_kv and add_zero_attn become
        bias_kv and zero_attn.
        """
        from . import _checkpoint

        read = _checkpoint.read_torch(module)
        return Layer(device, dtype=dtype, keep_weights=keep_weights, quantize=quantize, **read)

    @staticmethod
    def from_safetensors(
        path: str | os.PathLike[str],
        prefix: str = "",
        *,
        n_head: int | None = None,
        n_kv_head: int | None = None,
        rope: Rope | bool | None = None,
        device: Place = None,
        dtype: DType | None = None,
        keep_weights: bool = False,
        quantize: str | None = None,
    ) -> Layer:
        """The attention layer whose tensors begin with prefix, of a safetensors file, a folder
        with model.safetensors, or a checkpoint's model.safetensors.index.json.

        | names after the prefix | as in | prefix for example |
        |---|---|---|
        | q_proj, k_proj, v_proj, o_proj | Llama, vkattn | "model.layers.0.self_attn." |
        | in_proj_weight or q_proj_weight .., out_proj | PyTorch | "encoder.self_attn." |
        | c_attn, c_proj | GPT-2, transposed weights | "h.0.attn." |
        | qkv_proj, o_proj | Phi 3 | "model.layers.0.self_attn." |
        | self.query, .., output.dense | BERT | "bert.encoder.layer.0.attention." |
        | attention.query, .., output.dense | ViT | "vit.encoder.layer.0.attention." |
        | q_lin, k_lin, v_lin, out_lin | DistilBERT | "distilbert.transformer.layer.0.attention." |

        n_head, n_kv_head and, for Llama's names, rope are taken from config.json beside the file
        where they are not given; a vkattn file says all that in its metadata. Positions are scaled
        as `rope_from_config` says; a Rope without frequencies is refused there. A config.json that
        says of attention what this library does not know is UnsupportedError; a model_type whose
        layers nobody has compared is named in a warning. rope=False leaves the rotation out. Weights of 4 bits by GPTQ or AWQ, whose packing config.json says, become
        blocks of i4_g128 with the same values, see `repack_int4`; biases are float32. Whether
        attention is causal no checkpoint says: give causal=True to the call.
        """
        from . import _checkpoint

        read = _checkpoint.read_safetensors(path, prefix, n_head, n_kv_head, rope)
        return Layer(device, dtype=dtype, keep_weights=keep_weights, quantize=quantize, **read)

    def __copy__(self) -> Layer:
        return self  # copies of what holds it share the weights, which do not change

    def __repr__(self) -> str:
        closed = ", closed" if self.closed else ""
        return (
            f"<vkattn.Layer {self.dtype}, {self.n_head} heads over {self.n_kv_head}, "
            f"{self.query_dim} to {self.output_dim}{closed}>"
        )

    @overload
    def __call__(
        self,
        query: Array,
        key: Array | None = ...,
        value: Array | None = ...,
        *,
        layout: str | None = ...,
        cache: Cache | None = ...,
        scores: None = ...,
        dtype: DType | None = ...,
        path: str = ...,
        timeout: float = ...,
        **options: Unpack[AttentionOptions],
    ) -> Floats: ...
    @overload
    def __call__(
        self,
        query: Array,
        key: Array | None = ...,
        value: Array | None = ...,
        *,
        layout: str | None = ...,
        cache: Cache | None = ...,
        scores: str,
        dtype: DType | None = ...,
        path: str = ...,
        timeout: float = ...,
        **options: Unpack[AttentionOptions],
    ) -> tuple[Floats, Floats]: ...
    @takes_options
    def __call__(
        self,
        query: Array,
        key: Array | None = None,
        value: Array | None = None,
        *,
        layout: str | None = None,
        cache: Cache | None = None,
        scores: str | None = None,
        dtype: DType | None = None,
        path: str = "auto",
        timeout: float = DEFAULT_TIMEOUT,
        **options: Unpack[AttentionOptions],
    ) -> Any:
        """Runs the layer on host arrays.

        query [batch][n_q][query_dim], key [batch][n_kv][key_dim] (by default query), value
        [batch][n_kv][value_input_dim] (by default key); layout "sbd" swaps the first two axes of
        these and of the result; without the batch axis, batch is 1. cache: key and value are new
        ones that join it. dtype: storage of the inputs on the device, by default their own.

        Returns [batch][n_q][output_dim], float16 where query is that and float32 otherwise; with
        scores ("raw", "softcap", "bias", "softmax"), the pair (result, scores), scores being
        float32 [batch][n_head][n_q][n_kv + n_extra]; neither has a batch axis where query has none.
        batch, n_q and, without a cache, n_kv may be 0: rows without keys are the output's bias.
        """
        given = {"query": query, "key": key, "value": value}
        dtype = dtype if dtype is None else check_dtype(dtype, "dtype")
        host = {
            name: float_array(array, name, dtype, (2, 3))
            for name, array in given.items()
            if array is not None
        }
        scores = asked_scores(scores)
        layout = self.layout if layout is None else layout
        swap = 1 if choose(LAYOUTS, layout, "layout") else 0
        n_axes = host["query"].data.ndim
        unbatched = n_axes == 2
        for name, array in host.items():
            shape = list(array.data.shape)
            if len(shape) != n_axes:
                raise InvalidError(f"{name}: expected {n_axes} axes as query has, got {shape}")
            if unbatched:
                host[name] = array._replace(data=np.expand_dims(array.data, swap))
        size = host["query"].data.shape
        n_kv = cache.capacity if cache else host.get("key", host["query"]).data.shape[1 - swap]
        weights_shape = (size[swap], self.n_head, size[1 - swap], n_kv + self.n_extra)
        given_options = dict(options)
        if 0 in size[:2] or not n_kv:
            results = self._run_empty(
                host, swap, cache, weights_shape, scores, timeout, given_options
            )
        else:
            results = self._run(
                host, layout, cache, weights_shape, scores, path, timeout, given_options
            )
        if unbatched:
            results = [np.squeeze(x, axis) for x, axis in zip(results, (swap, 0))]
        return tuple(results) if scores else results[0]

    def _run_empty(
        self,
        host: dict[str, HostArray],
        swap: int,
        cache: Cache | None,
        weights_shape: tuple[int, ...],
        scores: str | None,
        timeout: float,
        options: dict[str, Any],
    ) -> list[np.ndarray]:
        """Without rows, or over no keys: then over one that a mask hides."""
        shape = host["query"].data.shape
        key = host.get("key", host["query"])
        for name, width in (("key", self.key_dim), ("value", self.value_input_dim)):
            if name in host and host[name].data.shape[:2] != key.data.shape[:2]:
                raise InvalidError(f"{name}: expected rows as key has, {list(key.data.shape)}")
            if name in host and host[name].data.shape[2] != width:
                raise InvalidError(f"{name}: expected {width} features, got {host[name].data.shape}")
        if shape[2] != self.query_dim or key.data.shape[swap] != shape[swap]:
            raise InvalidError(
                f"query: expected [batch][n_q][{self.query_dim}] with the batch of key, got"
                f" {list(shape)}"
            )
        check_options(options)
        if 0 not in shape[:2]:
            return self._run_hidden(host, swap, weights_shape, scores, timeout, options)
        if cache is not None and key.data.size:
            raise InvalidError("query: expected one or more rows, as key has some for the cache")
        dtype = np.float16 if host["query"].dtype == "f16" else np.float32
        results = [np.empty((*shape[:2], self.output_dim), dtype)]
        return [*results, np.empty(weights_shape, np.float32)] if scores else results

    def _run_hidden(
        self,
        host: dict[str, HostArray],
        swap: int,
        weights_shape: tuple[int, ...],
        scores: str | None,
        timeout: float,
        options: dict[str, Any],
    ) -> list[np.ndarray]:
        batch = weights_shape[0]
        for name, width in (("key", self.key_dim), ("value", self.value_input_dim)):
            size = (1, batch, width) if swap else (batch, 1, width)
            like = host.get(name, host["query"])
            host[name] = like._replace(data=np.zeros(size, like.data.dtype))
        keep = {name: value for name, value in options.items() if name not in _OF_KEYS}
        if {**self.options, **options}.get("masked_row") == "uniform" and not self.n_extra:
            keep["masked_row"] = "zero"  # the mean of nothing
        hidden = {name: None for name in _OF_KEYS if name in self.options}
        keep = {**hidden, **keep, "mask": np.zeros((1, 1), bool)}
        wide = (*weights_shape[:3], weights_shape[3] + 1)
        layout = "sbd" if swap else "bsd"
        results = self._run(host, layout, None, wide, scores, "auto", timeout, keep)
        return [results[0], *(x[..., 1:] for x in results[1:])]

    def _run(
        self,
        host: dict[str, HostArray],
        layout: str,
        cache: Cache | None,
        weights_shape: tuple[int, ...],
        scores: str | None,
        path: str,
        timeout: float,
        options: dict[str, Any],
    ) -> list[np.ndarray]:
        shape, device = host["query"].data.shape, self.device
        with ExitStack() as stack:
            own = stack.enter_context
            t = {name: own(upload(device, array)) for name, array in host.items()}
            output = own(Tensor(device, (*shape[:2], self.output_dim), result_dtype(host["query"])))
            scores_to = own(Tensor(device, weights_shape)) if scores else None
            plan = own(Plan(device, path=path))
            plan.layer(
                self,
                t["query"],
                output,
                key=t.get("key"),
                value=t.get("value"),
                layout=layout,
                cache=cache,
                scores=scores,
                scores_to=scores_to,
                **options,
            )
            plan.finish().run(timeout)
            return [t.read() for t in (output, scores_to) if t is not None]
