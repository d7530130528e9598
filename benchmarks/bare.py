"""Plain PyTorch that imports nothing of ours: seconds an image, training and evaluating a graph's JSON.

python bare.py GRAPH.json BATCH FORMAT SECONDS HELD_OUT [DEVICE]
"""

import json
import sys
import time

import torch
from torch import nn
from torch.nn.functional import avg_pool2d, conv2d, cross_entropy

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def module(layer, channels):
    kernel, stride = layer.get("kernel", 3), layer.get("stride", 1)
    padding, groups = layer.get("padding", (kernel - 1) // 2), layer.get("groups", 1)
    made = {
        "Conv2d": lambda: convolution(layer, channels, kernel, stride, padding, groups),
        "BatchNorm": lambda: nn.BatchNorm2d(channels),
        "ReLU": lambda: nn.ReLU(inplace=True),
        "MaxPool": lambda: nn.MaxPool2d(kernel, stride, padding),
        "GlobalPool": lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        "Dense": lambda: nn.Linear(channels, layer["features"]),
        "Add": lambda: lambda *inputs: sum(inputs[1:], inputs[0]),
        "Concat": lambda: lambda *inputs: torch.cat(inputs, 1),
        "Gate": lambda: lambda x, z: x * (2 * torch.sigmoid(z))[:, :, None, None],
    }
    return made[layer["type"]]()


def convolution(layer, channels, kernel, stride, padding, groups):
    few = kernel == 1 and stride > 1 and groups == 1 and channels < 16
    kind = StridedPixels if few else nn.Conv2d
    return kind(channels, layer["channels"], kernel, stride, padding, 1, groups, layer.get("bias", False))


class StridedPixels(nn.Conv2d):
    """oneDNN's gradient of this convolution writes past its memory and kills the process: its issue 6035."""

    def forward(self, x):
        if x.device.type == "cpu":
            return conv2d(avg_pool2d(x, 1, self.stride), self.weight, self.bias)
        return super().forward(x)


class Net(nn.Module):
    def __init__(self, graph):
        super().__init__()
        self.steps, values = [], {"input": torch.zeros(2, *graph["input"])}
        for index, node in enumerate(graph["nodes"]):
            reads, name = node["inputs"], node["name"]
            operation = module(node["layer"], values[reads[0]].shape[1])
            if isinstance(operation, nn.Module):
                self.add_module(str(index), operation)
            self.steps.append((operation, reads, name))
            values[name] = operation(*[values[read].clone() for read in reads])

    def forward(self, x):
        values = {"input": x}
        for operation, reads, name in self.steps:
            values[name] = operation(*[values[read] for read in reads])
        return values[name]


def synchronise(device):
    if device != "cpu":
        getattr(torch, device).synchronize()


# The bare loop: everything a training step and an evaluation need, and nothing else.
def measure(net, image, batch, format, seconds, held_out, device):
    dtype = DTYPES[format]
    torch.set_float32_matmul_precision("high" if format == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = format == "tf32", True
    x = torch.randn(max(4 * batch, held_out), *image).to(device, memory_format=torch.channels_last)
    y = torch.randint(10, (len(x),)).to(device)
    fused = device in ("cpu", "cuda", "xpu")
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=fused)
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)

    def train(step):
        part = slice(step % 4 * batch, (step % 4 + 1) * batch)
        with torch.autocast(device, dtype, enabled=dtype != torch.float32):
            loss = cross_entropy(net(x[part]), y[part], label_smoothing=0.1)
        sgd.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(sgd)
        scaler.update()

    @torch.inference_mode()
    def evaluate(step):
        with torch.autocast(device, dtype, enabled=dtype != torch.float32):
            return (net(x[:held_out]).argmax(1) == y[:held_out]).sum().item()

    def timed(work, images, repeats=5):
        for step in range(3):
            work(step)
        rates = []
        for _ in range(repeats):
            synchronise(device)
            began, steps = time.perf_counter(), 0
            while time.perf_counter() - began < seconds / repeats:
                work(steps)
                steps += 1
            synchronise(device)
            rates.append((time.perf_counter() - began) / (steps * images))
        return sorted(rates)

    train_rates = timed(train, batch)
    net.eval()
    return {"train": train_rates, "evaluate": timed(evaluate, held_out)}


if __name__ == "__main__":
    path, batch, format, seconds, held_out, *device = sys.argv[1:]
    where = device[0] if device else "cpu"
    with open(path) as file:
        graph = json.load(file)
    net = Net(graph).to(where, memory_format=torch.channels_last)
    rates = measure(net, graph["input"], int(batch), format, float(seconds), int(held_out), where)
    print(json.dumps(rates))
