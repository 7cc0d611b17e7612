"""PyTorch's times for the shapes of first_gpu.sh, on the same GPU: medians of ten by CUDA's events.

    torch_times.py [LENGTH]     8192 if not given; exits with 77 where there is no PyTorch with CUDA
"""

import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(77)
if not torch.cuda.is_available():
    sys.exit(77)

RUNS = 10


def median_ms(work):
    for _ in range(3):
        work()
    times = []
    for _ in range(RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[RUNS // 2]


def show(name, work, flop=0.0, byte=0.0):
    ms = median_ms(work)
    print(f"{name}: {ms:.4f} ms, {flop / ms / 1e9:.1f} TFLOP/s, {byte / ms / 1e6:.0f} GB/s", flush=True)


def normal(*shape, dtype=torch.float16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 8192
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    print(torch.__version__, torch.cuda.get_device_name(), flush=True)
    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    show("copy of 1 GiB, read and written", lambda: target.copy_(source), byte=2.0 * (1 << 30))
    del source, target
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        a, b = normal(n, n, dtype=dtype), normal(n, n, dtype=dtype)
        show(f"product, {n} cubed, {dtype}", lambda: a @ b.T, 2.0 * n**3)
    for head in (128, 64):
        q, k, v = (normal(1, 16, n, head) for _ in range(3))
        for causal in (False, True):
            show(f"attention, 16 heads of {head}, {n}{', causal' if causal else ''}",
                 lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
                 4.0 * 16 * n * n * head / (2 if causal else 1))
    q, k, v = (normal(1, 16, n, 128, dtype=torch.float32) for _ in range(3))
    show(f"attention, 16 heads of 128, {n}, float32",
         lambda: F.scaled_dot_product_attention(q, k, v), 4.0 * 16 * n * n * 128)
    for batch, keys in ((4, 4 * n), (1, 4096)):
        q = normal(batch, 32, 1, 128)
        k, v = (normal(batch, 8, keys, 128) for _ in range(2))
        show(f"decode, {batch} x {keys} keys, 32 heads by 8 of 128",
             lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
             byte=2.0 * 2 * batch * 8 * keys * 128)
    layer = torch.nn.MultiheadAttention(2048, 16, bias=True, batch_first=True, device="cuda",
                                        dtype=torch.float16).eval()
    x = normal(4, n // 4, 2048)
    with torch.no_grad():
        show(f"layer, 4 x {n // 4}, width 2048", lambda: layer(x, x, x, need_weights=False),
             8.0 * n * 2048**2 + 4.0 * 4 * (n // 4) ** 2 * 2048)
    row, weight = normal(1, 4096), normal(4096, 4096)
    show("one row by 4096 x 4096", lambda: row @ weight.T, byte=2.0 * 4096**2)


main()
