"""Writes tiny models of Hugging Face's `transformers` with their losses, logits and gradients.

    python make_transformers.py FOLDER

It needs `torch` and `transformers`; versions 1.12.1 and 4.36.2 wrote the files in
`tests/reference/transformers`. Nothing is downloaded: the models have random weights. For each
model there is a folder:

- `model.safetensors` (or parts with an index): the weights, as `save_pretrained` writes them;
- `gradients.safetensors`: the gradient of each of them, under the same name;
- `expected.txt`: the batch, the loss and the logits.

`gpt2/published` has the weights once more under the names of the published models.
`tests/it/hugging_face.rs` reads the files.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

VOCABULARY, BATCH, LENGTH = 20, 4, 7
WIDTH, N_LAYERS, N_HEADS = 16, 2, 4


def randomize(model):
    """Sets weights that differ everywhere, of 8 significant bits, so that BF16 is exact."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape)
        is_norm = "norm" in name or ".ln_" in name
        value = 1 + 0.3 * noise if is_norm and name.endswith("weight") else 0.3 * noise
        parameter.data = value.to(torch.bfloat16).to(torch.float32)


def write_expected(path, numbers):
    lines = [" ".join([name, *map(repr, values)]) for name, values in numbers.items()]
    path.write_text("\n".join(lines) + "\n")


def single(tensor):
    """The shortest decimals that give the same numbers of single precision."""
    return [float(str(it)) for it in tensor.detach().numpy().ravel()]


def language_model(model, folder):
    """Writes everything but the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    randomize(model)
    model.eval()
    texts = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
    result = model(input_ids=texts, labels=texts)
    result.loss.backward()
    gradients = {name: it.grad.contiguous() for name, it in model.named_parameters()}
    save_file(gradients, folder / "gradients.safetensors", metadata={"format": "pt"})
    # The loss is that of the first `LENGTH` tokens, which see nothing of the last one.
    expected = {
        "tokens": texts[:, :-1].flatten().tolist(),
        "next": texts[:, 1:].flatten().tolist(),
        "loss": single(result.loss),
        "logits": single(result.logits[:, :-1]),
    }
    write_expected(folder / "expected.txt", expected)


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


def main():
    folder = pathlib.Path(sys.argv[1])
    for number, (name, write) in enumerate({"gpt2": gpt2, "llama": llama}.items()):
        torch.manual_seed(number)
        write(folder / name)
        for config in folder.glob("**/*config.json"):
            config.unlink()


main()
