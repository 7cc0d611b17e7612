"""Trains a small classifier of sequences with PyTorch; its attention, forward and backward, runs on a
Vulkan device. Needs PyTorch 2.5 or later.

    python train.py

SPDX-License-Identifier: MIT"""

import torch

import vkattn.torch

TOKENS, WIDTH, HEADS, KINDS = 12, 32, 4, 8


class Classifier(torch.nn.Module):
    """Says whether the last token has occurred before."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(KINDS, WIDTH)
        self.attention = vkattn.torch.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.classify = torch.nn.Linear(WIDTH, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        last, rest = x[:, -1:], x[:, :-1]
        y, _ = self.attention(last, rest, rest, need_weights=False)
        return self.classify(y[:, 0] * last[:, 0])


def main() -> float:
    torch.manual_seed(1)
    model = Classifier()
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-2)
    for step in range(61):
        ids = torch.randint(KINDS, (64, TOKENS))
        labels = (ids[:, :-1] == ids[:, -1:]).any(dim=1).long()
        loss = torch.nn.functional.cross_entropy(model(ids), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    return loss.item()


if __name__ == "__main__":
    main()
