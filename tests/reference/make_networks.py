"""Writes tiny convolutional networks of PyTorch with their losses, logits and gradients.

    python make_networks.py FOLDER

It needs `torch` and `safetensors`; versions 2.15.0 and 0.8.0 wrote the files in
`tests/reference/networks`. Weights are random numbers, and images are numbers of a formula. For
each network there is a folder:

- `model.safetensors`: the weights and the running statistics;
- `gradients.safetensors`: the gradient of each weight, under the same name. In the place of a
  running statistic, it has the difference that a step makes, over a learning rate of 0.5;
- `expected.txt`: the number of pixels (`made`), the labels (`i32`), the logits and the loss of an
  evaluation, and the loss of a step (`step_loss`), whose batch norms use the batch.

`tests/it/hugging_face.rs` reads the files.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch import nn

LEARNING_RATE = 0.5


def conv(channels, out_channels, kernel, stride, groups=1):
    return nn.Conv2d(channels, out_channels, kernel, stride, kernel // 2, groups=groups, bias=False)


class DoubleConv(nn.Sequential):
    def __init__(self, channels, out_channels):
        layers = []
        for inputs in (channels, out_channels):
            layers += [conv(inputs, out_channels, 3, 1), nn.BatchNorm2d(out_channels), nn.ReLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    def __init__(self, channels, width, n_levels, n_classes):
        super().__init__()
        widths = [width << level for level in range(n_levels + 1)]
        pairs = list(zip(widths, widths[1:]))
        self.first = DoubleConv(channels, width)
        self.down = nn.ModuleList(DoubleConv(few, many) for few, many in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(many, few, 2, 2) for few, many in reversed(pairs))
        self.join = nn.ModuleList(DoubleConv(many, few) for few, many in reversed(pairs))
        self.last = nn.Conv2d(width, n_classes, 1)

    def forward(self, x):
        h, skips = self.first(x), []
        for down in self.down:
            skips.append(h)
            h = down(nn.functional.max_pool2d(h, 2))
        for up, join in zip(self.up, self.join):
            h = join(torch.cat([skips.pop(), up(h)], 1))
        return self.last(h)


class InvertedResidual(nn.Module):
    def __init__(self, channels, out_channels, stride, expansion):
        super().__init__()
        hidden = expansion * channels
        self.expand = nn.Sequential(conv(channels, hidden, 1, 1), nn.BatchNorm2d(hidden)) if expansion > 1 else None
        self.depthwise = nn.Sequential(conv(hidden, hidden, 3, stride, hidden), nn.BatchNorm2d(hidden))
        self.project = nn.Sequential(conv(hidden, out_channels, 1, 1), nn.BatchNorm2d(out_channels))
        self.has_shortcut = stride == 1 and channels == out_channels

    def forward(self, x):
        h = x if self.expand is None else nn.functional.relu6(self.expand(x))
        h = self.project(nn.functional.relu6(self.depthwise(h)))
        return x + h if self.has_shortcut else h


class MobileNetV2(nn.Module):
    def __init__(self, width, n_classes):
        super().__init__()
        self.first = nn.Sequential(conv(3, width, 3, 2), nn.BatchNorm2d(width))
        blocks, channels = [], width
        for expansion, out_channels, n_blocks, stride in [
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ]:
            for block in range(n_blocks):
                strides = stride if block == 0 else 1
                blocks.append(InvertedResidual(channels, out_channels * width // 32, strides, expansion))
                channels = out_channels * width // 32
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Sequential(conv(channels, 40 * width, 1, 1), nn.BatchNorm2d(40 * width))
        self.classifier = nn.Linear(40 * width, n_classes)

    def forward(self, x):
        h = self.blocks(nn.functional.relu6(self.first(x)))
        return self.classifier(nn.functional.relu6(self.last(h)).mean((2, 3)))


def short(tensor):
    """Rounds numbers to 8 significant bits, so that BF16 is exact."""
    return tensor.to(torch.bfloat16).to(torch.float32)


def randomize(model, images):
    """Sets weights that differ everywhere, and running statistics as after some steps."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data = short(1 + 0.3 * torch.randn(module.weight.shape))
            module.bias.data = short(0.3 * torch.randn(module.bias.shape))
        elif isinstance(module, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
            for parameter in module.parameters():
                parameter.data = short(parameter.data)
    for _ in range(20):
        model.train()(images)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = short(module.running_mean)
            module.running_var = short(module.running_var)


def made(*shape):
    """Numbers of a formula, which are exact in single precision."""
    places = torch.arange(torch.Size(shape).numel())
    return (((31 * places + 7919) * places % 4093 - 2046) / 2048).reshape(shape)


def single(tensor):
    """The shortest decimals that give the same numbers of single precision."""
    return [str(it) for it in tensor.detach().numpy().ravel()]


def write(folder, model, images, labels):
    folder.mkdir(parents=True, exist_ok=True)
    randomize(model, images)
    state = {name: it for name, it in model.state_dict().items() if "num_batches" not in name}
    before = {name: it.clone() for name, it in state.items()}
    save_file({name: it.to(torch.bfloat16) for name, it in before.items()}, folder / "model.safetensors")
    logits = model.eval()(images)
    loss = nn.functional.cross_entropy(logits, labels)
    step_loss = nn.functional.cross_entropy(model.train()(images), labels)
    step_loss.backward()
    differences = {name: (before[name] - it) / LEARNING_RATE for name, it in state.items()}
    gradients = differences | {name: it.grad.contiguous() for name, it in model.named_parameters()}
    save_file(gradients, folder / "gradients.safetensors")
    # The classes of pixels are the last dim.
    order = (0, *range(2, logits.dim()), 1)
    lines = [("made", [str(images.numel())]), ("i32", single(labels.int())), ("loss", single(loss))]
    lines += [("step_loss", single(step_loss)), ("logits", single(logits.permute(order)))]
    text = "".join(" ".join([name, *values]) + "\n" for name, values in lines)
    (folder / "expected.txt").write_text(text)


def unet(folder):
    labels = torch.randint(3, (4, 8, 8))
    write(folder, UNet(2, 4, 2, 3), made(4, 2, 8, 8), labels)


def mobilenet_v2(folder):
    # The last batch norms have one pixel of each image. If weights change by 2^-24, gradients
    # change by 8e-5 of their largest number; with half as many images, by 1e-3. At half the width,
    # layers of one channel have gradients that are 0 but for rounding: norms undo their scale.
    write(folder, MobileNetV2(4, 5), made(16, 3, 32, 32), torch.randint(5, (16,)))


def main():
    folder = pathlib.Path(sys.argv[1])
    for number, network in enumerate([unet, mobilenet_v2]):
        torch.manual_seed(number)
        network(folder / network.__name__)
    for file in folder.glob("**/*.safetensors"):
        file.chmod(0o644)


main()
