"""Writes tiny models of `transformers` and PyTorch with their losses, logits and gradients.

    python make_transformers.py FOLDER

It needs `torch` and `transformers`; versions 1.12.1 and 4.36.2 wrote the files in
`tests/reference/transformers`. Nothing is downloaded: weights, images and texts are random numbers.
For each model there is a folder:

- `model.safetensors` (or parts with an index): the weights, as `save_pretrained` writes them;
- `gradients.safetensors`: the gradient of each of them, under the same name;
- `expected.txt`: the inputs (`i32` or `f32`), the loss and the logits;
- `continued.txt`, for language models that predict the next token: three tokens, and the most
  probable ones after them.

`gpt2/published` has the weights once more under the names of the published models.
`tests/it/hugging_face.rs` and `tests/it/pretrained.rs` read the files.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

VOCABULARY, BATCH, LENGTH = 20, 4, 7
WIDTH, N_LAYERS, N_HEADS, N_CLASSES = 16, 2, 4, 5


def short(tensor):
    """Rounds numbers to 8 significant bits, so that BF16 is exact."""
    return tensor.to(torch.bfloat16).to(torch.float32)


def randomize(model):
    """Sets weights that differ everywhere."""
    for name, parameter in model.named_parameters():
        noise = 0.3 * torch.randn(parameter.shape)
        is_norm = "norm" in name.lower() or ".ln_" in name
        parameter.data = short(1 + noise if is_norm and name.endswith("weight") else noise)


def single(tensor):
    """The shortest decimals that give the same numbers of single precision."""
    return [str(it) for it in tensor.detach().numpy().ravel()]


def write(folder, model, inputs, loss, logits):
    """Writes the expected numbers, after the backward pass."""
    folder.mkdir(parents=True, exist_ok=True)
    loss.backward()
    gradients = {name: it.grad.contiguous() for name, it in model.named_parameters()}
    save_file(gradients, folder / "gradients.safetensors", metadata={"format": "pt"})
    lines = [("f32" if it.is_floating_point() else "i32", single(it)) for it in inputs]
    lines += [("loss", single(loss)), ("logits", single(logits))]
    text = "".join(" ".join([name, *values]) + "\n" for name, values in lines)
    (folder / "expected.txt").write_text(text)


def language_model(model, folder):
    randomize(model.eval())
    texts = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
    result = model(input_ids=texts, labels=texts)
    # The loss is that of the first `LENGTH` tokens, which see nothing of the last one.
    write(folder, model, [texts[:, :-1], texts[:, 1:]], result.loss, result.logits[:, :-1])
    tokens = [3, 1, 4]
    for _ in range(LENGTH):
        tokens.append(model(input_ids=torch.tensor([tokens])).logits[0, -1].argmax().item())
    (folder / "continued.txt").write_text(" ".join(map(str, tokens)) + "\n")


def gpt2(folder):
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH + 3, n_embd=WIDTH, n_layer=N_LAYERS, n_head=N_HEADS,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
    )
    model = GPT2LMHeadModel(config)
    language_model(model, folder)
    model.save_pretrained(folder, safe_serialization=True)
    # The published files lack the prefix, and have the masks of attention.
    state = {name.removeprefix("transformer."): it for name, it in model.state_dict().items()}
    del state["lm_head.weight"]
    mask = torch.ones(LENGTH + 3, LENGTH + 3).tril()[None, None]
    state |= {f"h.{layer}.attn.bias": mask.clone() for layer in range(N_LAYERS)}
    (folder / "published").mkdir(exist_ok=True)
    save_file(state, folder / "published" / "model.safetensors", metadata={"format": "pt"})


def llama(folder):
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=24, num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS, num_key_value_heads=2, rope_theta=500.0, rms_norm_eps=1e-5,
        max_position_embeddings=LENGTH + 1, tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    language_model(model, folder)
    # In BF16 and in several files, as the published models are.
    model.to(torch.bfloat16).save_pretrained(folder, safe_serialization=True, max_shard_size="5KB")


def bert(folder):
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=N_LAYERS, num_attention_heads=N_HEADS,
        intermediate_size=4 * WIDTH, max_position_embeddings=LENGTH + 3,
    )
    model = BertForMaskedLM(config)
    randomize(model.eval())
    # Token 0 is padding, whose embedding has no gradient.
    texts, labels = torch.randint(1, VOCABULARY, (2, BATCH, LENGTH))
    result = model(input_ids=texts, labels=labels)
    write(folder, model, [texts, labels], result.loss, result.logits)
    model.to(torch.bfloat16).save_pretrained(folder, safe_serialization=True)


def vit(folder):
    config = ViTConfig(
        image_size=8, patch_size=4, num_channels=3, hidden_size=WIDTH, num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS, intermediate_size=4 * WIDTH, num_labels=N_CLASSES,
    )
    model = ViTForImageClassification(config)
    randomize(model.eval())
    images, labels = short(torch.randn(BATCH, 3, 8, 8)), torch.randint(N_CLASSES, (BATCH,))
    result = model(pixel_values=images, labels=labels)
    write(folder, model, [images, labels], result.loss, result.logits)
    model.to(torch.bfloat16).save_pretrained(folder, safe_serialization=True)


def recurrent(folder, name, layer):
    """PyTorch's layer, and a linear layer of its outputs."""
    model = torch.nn.ModuleDict({name: layer, "linear": torch.nn.Linear(WIDTH, N_CLASSES)})
    randomize(model)
    x, labels = short(torch.randn(BATCH, LENGTH, 6)), torch.randint(N_CLASSES, (BATCH, LENGTH))
    logits = model["linear"](layer(x)[0])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    write(folder, model, [x, labels], loss, logits)
    save_file(model.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})


def lstm(folder):
    recurrent(folder, "lstm", torch.nn.LSTM(6, WIDTH, batch_first=True))


def gru(folder):
    recurrent(folder, "gru", torch.nn.GRU(6, WIDTH, batch_first=True))


def main():
    folder = pathlib.Path(sys.argv[1])
    for number, model in enumerate([gpt2, llama, bert, vit, lstm, gru]):
        torch.manual_seed(number)
        model(folder / model.__name__)
    for config in folder.glob("**/*config.json"):
        config.unlink()
    for file in folder.glob("**/*.safetensors"):
        file.chmod(0o644)


main()
