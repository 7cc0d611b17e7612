"""Whole models on the device, from their files.

    import vkattn.models

    model = vkattn.models.load("SmolLM2-135M-Instruct.Q4_1.gguf")
    for text in model.stream("Vulkan is", 40):
        print(text, end="", flush=True)

    model = vkattn.models.load("all-MiniLM-L6-v2/")
    vectors = model.embed(["a text", "another one"])        # [2][384], of length 1
    weights = model.attentions(["a text"], layers=[-1])[0]  # [1][n_head][n][n]

| model_type of config.json | class | tried with |
|---|---|---|
| llama, mistral, phi3, qwen2, qwen3 | `Decoder`, also of GGUF files | SmolLM2 |
| gpt2 | `Decoder` | IgLM |
| gpt_neox and others, see docs/models.md | `Decoder` | random weights |
| bert and 20 kin, such as roberta, modernbert, t5 | `Encoder`, with the pooling of sentence-transformers | all-MiniLM-L6-v2, RXNMapper |
| bart, mbart, marian, m2m_100, t5 | `Seq2Seq`, which is an `Encoder`: a text in, ids out | random weights |
| whisper | `Whisper`: sound in, ids out | random weights |
| vit, deit, dinov2 | `ViT`: images in, rows or logits out | random weights |
| clip, siglip | `Clip`: vectors of images and texts | random weights |

A checkpoint is a folder with config.json and safetensors files, or a GGUF file, whose quantised
weights stay as they are. What a model has and this package does not know is refused with a
sentence: a type of model, a tensor, a value of a key. Keys of config.json whose meaning is not known
are named in a warning; tensors that are known to be without effect are listed in `unused`.
"""

from ._clip import Clip
from ._decoder import Decoder
from ._encoder import Encoder
from ._load import load
from ._seq2seq import Seq2Seq
from ._vision import ViT
from ._whisper import Whisper

__all__ = [
    *("Clip", "Decoder", "Encoder", "Seq2Seq", "ViT", "Whisper"),
    "load",
]
