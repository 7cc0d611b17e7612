#!/usr/bin/env python3
"""The losses that PyTorch has where `vkattn-mnist train` trains, from the same start in the same order.

    vkattn-mnist train --model NAME --epochs 0 --output start.safetensors ...
    tests/mnist/losses.py start.safetensors --images IMAGES --labels LABELS --steps 112 \\
        --output NAME_losses.npy

The files of tests/mnist were made so, with PyTorch 2.14 in double precision. --compare FILE.safetensors
compares with the losses of a training that began at the start, which may be the file of any epoch:
a step that crosses a ReLU's corner the other way by rounding differs in all that follow, in PyTorch's
own float32 too. SPDX-License-Identifier: MIT"""
import argparse
import json
import os
import struct
import sys

import numpy
import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "mnist"))
import train_mnist


def read_safetensors(path):
    """Metadata, and name -> array."""
    with open(path, "rb") as file:
        raw = file.read()
    size, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    metadata, arrays = header.pop("__metadata__"), {}
    for name, entry in header.items():
        begin, end = (8 + size + at for at in entry["data_offsets"])
        arrays[name] = numpy.frombuffer(raw[begin:end], "<f4").reshape(entry["shape"])
    return metadata, arrays


def philox(counter, key):
    """The first word of Philox4x32-10."""
    c, k, mask = list(counter), list(key), 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & mask, (p0 >> 32) ^ c[3] ^ k[1], p0 & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c[0]


def order_of(count, epoch, seed):
    order = list(range(count))
    for i in range(count - 1, 0, -1):
        other = philox((i, epoch, 0, 1), (seed, 0)) * (i + 1) >> 32
        order[i], order[other] = order[other], order[i]
    return order


def build(kind, arrays, images):
    if kind == "mlp":
        hidden, pixels = arrays["hidden.weight"].shape
        model = nn.Sequential()
        model.add_module("hidden", nn.Linear(pixels, hidden))
        model.add_module("relu", nn.ReLU())
        model.add_module("classifier", nn.Linear(hidden, train_mnist.CLASSES))
    else:
        model = train_mnist.Classifier(images.shape[1], 16,
                                       "patches" if kind == "documented" else "channels")
    names = set(dict(model.named_parameters()))
    model.load_state_dict({n: torch.tensor(a) for n, a in arrays.items() if n in names})
    return model


def adam_of(model, arrays, training):
    """The optimiser, where the file's training stopped."""
    optimizer = torch.optim.Adam(model.parameters(), lr=training["learning_rate"])
    if training["step"] > 0:
        for name, parameter in model.named_parameters():
            optimizer.state[parameter] = {
                "step": torch.tensor(float(training["step"])),
                "exp_avg": torch.tensor(arrays["first_moment." + name]).to(parameter),
                "exp_avg_sq": torch.tensor(arrays["second_moment." + name]).to(parameter)}
    return optimizer


def losses(model, optimizer, x, labels, training, steps):
    out, epoch = [], training["epochs"]
    while len(out) < steps:
        order = torch.tensor(order_of(len(x), epoch, training["seed"]))
        for batch in order.split(training["batch"]):
            loss = functional.cross_entropy(model(x[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            out.append(loss.item())
        epoch += 1
    return numpy.array(out[:steps])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("start")
    parser.add_argument("--images", required=True)
    parser.add_argument("--labels", required=True)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--output")
    parser.add_argument("--compare")
    args = parser.parse_args()

    metadata, arrays = read_safetensors(args.start)
    training = json.loads(metadata["training"])
    patches, labels = train_mnist.read_digits(args.images, args.labels)
    model = build(training["model"], arrays, patches)
    if training["model"] == "mlp":
        patches = train_mnist.read_idx(args.images, 3).float().div(255).flatten(1)
    dtype = getattr(torch, args.dtype)
    model = model.to(dtype)
    want = losses(model, adam_of(model, arrays, training), patches.to(dtype), labels, training,
                  args.steps)
    if args.output:
        numpy.save(args.output, want.astype("<f4"))
    if args.compare:
        got = read_safetensors(args.compare)[1]["losses"][training["step"]:][:args.steps]
        print("%d steps, worst difference %.3g" % (len(got), abs(got - want[:len(got)]).max()))


if __name__ == "__main__":
    main()
