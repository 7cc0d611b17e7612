#!/usr/bin/env python3
"""Trains the digit classifier that vkattn-mnist runs and exports it as safetensors.

    pip install torch
    examples/mnist/train_mnist.py --train-images train-images-idx3-ubyte \\
        --train-labels train-labels-idx1-ubyte --test-images t10k-images-idx3-ubyte \\
        --test-labels t10k-labels-idx1-ubyte --output digits.safetensors
    vkattn-mnist --model digits.safetensors --images t10k-images-idx3-ubyte \\
        --labels t10k-labels-idx1-ubyte

The four files are MNIST's, unpacked. A 28x28 image becomes 16 patches of 7x7 pixels, which pass
through an attention layer of 16 heads, each as wide as a patch, a ReLU and a linear layer.

--attend patches   each head attends over the 16 patches: softmax(q k^T / 7) v
--attend channels  the projections are read as [batch][head][pixel of a patch][patch], so that each
                   head attends over the 49 pixels: softmax(q k^T / 4) v

Heads lie interleaved in the projections (output d * heads + h) and, for patches, blocked in the
input of o_proj (h * 49 + d). The file's metadata says so in "config".
"""

import argparse
import json
import os
import struct
import sys

import torch
from torch import nn
from torch.nn import functional

SIDE = 7  # pixels of a patch's side
CLASSES = 10


def read_idx(path, rank):
    """The unsigned bytes of an IDX file with `rank` axes."""
    with open(path, "rb") as file:
        raw = bytearray(file.read())
    start = 4 + 4 * rank
    if len(raw) < start or raw[:4] != bytes([0, 0, 8, rank]):
        sys.exit(f"{path}: expected an unpacked IDX file of {rank} axes")
    shape = struct.unpack(f">{rank}I", raw[4:start])
    data = torch.frombuffer(raw, dtype=torch.uint8)[start:]
    if data.numel() != torch.Size(shape).numel():
        sys.exit(f"{path}: has {data.numel()} bytes of data, its header asks for {shape}")
    return data.reshape(shape)


def read_digits(images_path, labels_path):
    """Patches [n][patch][pixel] in 0 .. 1, and labels [n]."""
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    count, rows, cols = images.shape
    if rows % SIDE or cols % SIDE or len(labels) != count:
        sys.exit(f"{images_path}: {count} images of {rows}x{cols} do not fit {labels_path}")
    patches = images.float().div(255).reshape(count, rows // SIDE, SIDE, cols // SIDE, SIDE)
    return patches.permute(0, 1, 3, 2, 4).reshape(count, -1, SIDE * SIDE), labels.long()


class Classifier(nn.Module):
    def __init__(self, patches, heads, attend):
        super().__init__()
        width = SIDE * SIDE
        self.heads, self.attend = heads, attend
        self.q_proj = nn.Linear(width, heads * width)
        self.k_proj = nn.Linear(width, heads * width)
        self.v_proj = nn.Linear(width, heads * width)
        self.o_proj = nn.Linear(heads * width, width)
        self.classifier = nn.Linear(patches * width, CLASSES)

    def split(self, x):
        """[batch][patch][pixel * heads] -> [batch][head][patch][pixel], or pixel before patch."""
        batch, patches, _ = x.shape
        order = (0, 3, 1, 2) if self.attend == "patches" else (0, 3, 2, 1)
        return x.reshape(batch, patches, -1, self.heads).permute(order)

    def forward(self, x):
        q, k, v = (self.split(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        context = (scores.softmax(-1) @ v).transpose(1, 2)
        hidden = self.o_proj(context.reshape(x.shape[0], x.shape[1], -1))
        return self.classifier(functional.relu(hidden).flatten(1))


def accuracy(model, patches, labels):
    with torch.no_grad():
        read = torch.cat([model(chunk).argmax(-1) for chunk in patches.split(500)])
    return (read == labels).float().mean().item()


def train(model, patches, labels, args):
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        order, total = torch.randperm(len(patches)), 0.0
        for batch in order.split(args.batch):
            loss = functional.cross_entropy(model(patches[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        print(f"epoch {epoch + 1}/{args.epochs}: loss {total / len(patches):.4f}", flush=True)


def export(model, args):
    """Writes safetensors: the header's length, the header as JSON, the tensors one by one."""
    config = {"num_heads": args.heads, "layout": "bsd", "qkv_heads": "interleaved"}
    if args.attend == "channels":
        config["attend"] = "channels"
    header = {"__metadata__": {
        "format": "vkattn-mnist-1",
        "config": json.dumps(config),
        "patch": str(SIDE),
        "classes": str(CLASSES),
        "trained": f"PyTorch {torch.__version__}, Adam lr {args.lr}, batch {args.batch}, "
                   f"{args.epochs} epochs, seed {args.seed}",
    }}
    data = bytearray()
    for name, tensor in sorted(model.state_dict().items()):
        raw = bytes(tensor.detach().float().contiguous().view(torch.uint8).flatten().tolist())
        header[name] = {"dtype": "F32", "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    beside = f"{args.output}.{os.getpid()}.tmp"
    with open(beside, "xb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    os.replace(beside, args.output)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-images", required=True)
    parser.add_argument("--train-labels", required=True)
    parser.add_argument("--test-images", required=True)
    parser.add_argument("--test-labels", required=True)
    parser.add_argument("--output", required=True, help="the safetensors file")
    parser.add_argument("--attend", choices=("patches", "channels"), default="patches")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    patches, labels = read_digits(args.train_images, args.train_labels)
    model = Classifier(patches.shape[1], args.heads, args.attend)
    train(model, patches, labels, args)
    test_patches, test_labels = read_digits(args.test_images, args.test_labels)
    print(f"test accuracy: {accuracy(model, test_patches, test_labels):.4f}")
    export(model, args)


if __name__ == "__main__":
    main()
