"""Which family a file is of."""

from __future__ import annotations

import os
import warnings
from typing import Any, TypeVar, Union, overload

from .._arrays import DType, check_dtype
from .._config import read_json_file, shown
from .._device import Device, Place, pick_device
from .._errors import FileError, InvalidError, UnsupportedError
from .._gguf import GGUF
from ._causal import Causal
from ._clip import FAMILIES as PAIRS
from ._clip import Clip
from ._decoder import Decoder
from ._design import design_of_config
from ._encoder import Encoder
from ._encoder_families import FAMILIES as TEXTS
from ._encoder_families import REFUSED
from ._families import FAMILIES, MISSING
from ._gguf_encoders import ENCODERS as ENCODERS_OF_GGUF
from ._gguf_encoders import keys_of_gguf, kind_of, renamed
from ._gguf_rows import ARCHITECTURES, design_of_gguf
from ._place import check_folder, check_path
from ._pooling import Pooling, decoder_pooling_of, gguf_pooling_of, model_folder, pooling_of
from ._quantize import check_quantize
from ._seq2seq import Seq2Seq, has_decoder
from ._seq2seq_rows import FAMILIES as SEQ2SEQ
from ._keys import Keys
from ._source import FolderWeights, GGUFWeights
from ._text import Text, stop_ids_of
from ._vision import FAMILIES as IMAGES
from ._vision import ViT
from ._whisper import MODEL_TYPE as WHISPER
from ._whisper import Whisper

ENCODERS = (*TEXTS, *(kind for kind in SEQ2SEQ if kind not in TEXTS), *IMAGES, *PAIRS)
Model = Union[Decoder, Encoder, Whisper, ViT, Clip]
_CLASSES = (Decoder, Seq2Seq, Encoder, Whisper, ViT, Clip)
M = TypeVar("M", Decoder, Encoder, Seq2Seq, Whisper, ViT, Clip)

# Keys that do not change what a model computes here: of training, of texts, of how it was stored.
_INERT = {
    *(
        "architectures",
        "transformers_version",
        "torch_dtype",
        "dtype",
        "_name_or_path",
        "use_cache",
    ),
    *(
        "attention_dropout",
        "hidden_dropout_prob",
        "hidden_dropout",
        "attention_probs_dropout_prob",
        "initializer_range",
    ),
    *("classifier_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop", "gradient_checkpointing"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id", "model_type"),
    *("cls_token_id", "decoder_start_token_id", "tokenizer_class", "task_specific_params"),
    *("pretraining_tp", "output_attentions", "output_hidden_states", "output_past", "return_dict"),
    *("is_encoder_decoder", "tie_encoder_decoder", "problem_type", "id2label", "label2id"),
    *("summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type"),
    *(
        "summary_use_proj",
        "is_llama_config",
        "transformers.js_config",
        "auto_map",
        "chunk_size_feed_forward",
    ),
    *("dropout", "qa_dropout", "seq_classif_dropout", "classifier_dropout_prob"),
    # What old versions of transformers wrote of how ids are generated.
    *("do_sample", "length_penalty", "max_length", "num_beams", "num_return_sequences"),
    *("repetition_penalty", "temperature", "top_k", "top_p", "eos_token_ids"),
    *("num_labels", "torchscript", "use_bfloat16"),
    *("activation_dropout", "residual_dropout", "embedding_dropout", "resid_dropout"),
    *("embed_dropout", "embd_dropout", "emb_pdrop", "layerdrop", "init_std", "prefix"),
    *("cache_implementation", "eod_token_id", "tokenizer_name"),
    *("sentence_transformers", "sbert_ce_default_activation_function", "mask_token_id"),
    *("finetuning_task", "directionality", "pooler_fc_size", "pooler_num_attention_heads"),
    *(
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
        "pruned_heads",
        "name_or_path",
    ),
}
_INERT_GGUF = ("general.", "tokenizer.", "quantize.", "mradermacher.")


@overload
def load(
    path: str | os.PathLike[str],
    *,
    device: Place = ...,
    dtype: DType | None = ...,
    quantize: str | None = ...,
) -> Model: ...
@overload
def load(
    path: str | os.PathLike[str],
    kind: type[M],
    *,
    device: Place = ...,
    dtype: DType | None = ...,
    quantize: str | None = ...,
) -> M: ...
def load(
    path: str | os.PathLike[str],
    kind: Any = None,
    *,
    device: Place = None,
    dtype: DType | None = None,
    quantize: str | None = None,
) -> Any:
    """The model of a folder with config.json and safetensors files, or of a GGUF file.

    kind: the class that is wanted, such as `Decoder`, which type checkers then know; InvalidError where
    the file holds another.

    dtype: "f32", "f16" or "bf16", to which the matrices of a folder are converted; by default they
    stay as they are, as do quantised ones (GPTQ, AWQ, fp8, compressed-tensors, ...). quantize: "q8_0",
    "q4_0", "q4_K", "q6_K" or another type of `vkattn.quantize`, for a folder or file of floats: its matrices become blocks of
    that type. On a terminal a bar on stderr shows how far loading is.
    """
    place = os.fsdecode(path)
    quantize = check_quantize(quantize)
    dtype = dtype if dtype is None else check_dtype(dtype, "dtype")
    check_path(place)
    model: Model
    if os.path.isdir(place):
        model = _load_folder(place, pick_device(device), dtype, quantize)
    elif dtype is not None:
        raise InvalidError("dtype: the weights of a GGUF file stay as they are")
    else:
        model = _load_gguf(GGUF(place), pick_device(device), quantize)
    if kind is not None and not isinstance(model, kind):
        found = next(x.__name__ for x in _CLASSES if isinstance(model, x))
        raise InvalidError(f"{place}: expected class {kind.__name__}, got {found}")
    return model


def _stop_ids(value: Any, where: str) -> tuple[int, ...]:
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(i) is int for i in ids):
        raise FileError(f"{where}: eos_token_id: expected whole numbers, got {shown(value)}")
    return tuple(ids)


def _load_folder(folder: str, device: Device, dtype: str | None, quantize: str | None) -> Model:
    whole, folder = folder, model_folder(folder)
    check_folder(folder, "config.json")
    where = os.path.join(folder, "config.json")
    keys = Keys(read_json_file(where), where)
    kind = keys.get("model_type", str)
    known = (*FAMILIES, WHISPER, *ENCODERS)
    if kind in (*MISSING, *REFUSED):
        raise UnsupportedError(
            f"{where}: model_type {shown(kind)} is not supported, for want of"
            f" {MISSING.get(kind) or REFUSED[kind]}"
        )
    if kind not in known:
        raise UnsupportedError(
            f"{where}: model_type {shown(kind)} is not supported; expected one of"
            f" {', '.join(known)}"
        )
    quantization = keys.get("quantization_config", dict)
    stop = keys.values.get("eos_token_id")
    generation, said = os.path.join(folder, "generation_config.json"), None
    if (kind in SEQ2SEQ or kind not in ENCODERS) and os.path.isfile(generation):
        said = Keys(read_json_file(generation), generation)
        stop = said.values.get("eos_token_id", stop)
    stops, text = _stop_ids(stop, where), Text(folder)
    design = design_of_config(keys, kind) if kind in FAMILIES else None
    check_folder(folder, "model.safetensors", "model.safetensors.index.json")
    weights = FolderWeights(folder, device, dtype, quantization, quantize)
    model: Model
    try:
        if design:
            model = Causal(weights, design, stops, text)
            model.pooling = decoder_pooling_of(whole)
        elif kind == WHISPER:
            model = Whisper(weights, keys, stops, text, said)
        elif kind in IMAGES:
            model = ViT(weights, keys, str(kind))
        elif kind in PAIRS:
            model = Clip(weights, keys, str(kind), text)
        elif kind in SEQ2SEQ and (kind not in TEXTS or has_decoder(weights, str(kind))):
            model = Seq2Seq(weights, keys, str(kind), pooling_of(whole), text, stops, dtype)
        else:
            model = Encoder(weights, keys, TEXTS[str(kind)], pooling_of(whole), text, dtype)
    finally:
        weights.progress.close()
    unknown = sorted(key for key in keys.left if key.rpartition(".")[2] not in _INERT)
    if unknown:
        warnings.warn(
            f"{where}: it is not known what {', '.join(map(shown, unknown))} would change: computed"
            " without",
            stacklevel=3,
        )
    return model


def _load_gguf(file: GGUF, device: Device, quantize: str | None) -> Decoder | Encoder:
    keys = Keys(file.metadata, file.path)
    kind = keys.get("general.architecture", str)
    if kind in ENCODERS_OF_GGUF:
        return _load_gguf_encoder(file, str(kind), keys, device, quantize)
    if kind not in ARCHITECTURES:
        raise UnsupportedError(
            f"{file.path}: general.architecture {shown(kind)} is not supported; expected one of"
            f" {', '.join((*ARCHITECTURES, *ENCODERS_OF_GGUF))}"
        )
    if "token_embd.weight" not in file.names:
        raise InvalidError(f"{file.path}: there is no tensor token_embd.weight")
    weights = GGUFWeights(file, device, quantize)
    design = design_of_gguf(keys, kind, file, weights)
    pooling = gguf_pooling_of(keys, f"{kind}.pooling_type")
    _refuse_unknown(keys)
    try:
        model = Causal(weights, design, stop_ids_of(file), Text(file))
        model.pooling = pooling
        return model
    finally:
        weights.progress.close()


def _refuse_unknown(keys: Keys) -> None:
    unknown = sorted(key for key in keys.left if not key.startswith((*_INERT_GGUF, "split.")))
    if unknown:
        raise UnsupportedError(f"{keys.where}: it is not known what {unknown[0]} would change")


def _load_gguf_encoder(
    file: GGUF, arch: str, keys: Keys, device: Device, quantize: str | None
) -> Encoder:
    if "token_embd.weight" not in file.names:
        raise InvalidError(f"{file.path}: there is no tensor token_embd.weight")
    row = ENCODERS_OF_GGUF[arch]
    names, kind = renamed(row, file), kind_of(row, file)
    said = keys_of_gguf(row, arch, file, keys)
    pooling = gguf_pooling_of(keys, f"{arch}.pooling_type") or Pooling()
    _refuse_unknown(keys)
    weights, text = GGUFWeights(file, device, quantize, names), Text(file)
    try:
        if kind in SEQ2SEQ and has_decoder(weights, kind):
            return Seq2Seq(weights, said, kind, pooling, text, stop_ids_of(file))
        return Encoder(weights, said, TEXTS[kind], pooling, text)
    finally:
        weights.progress.close()
