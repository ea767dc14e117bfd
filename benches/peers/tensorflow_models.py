"""Measures the same training step in TensorFlow, and prints a JSON line.

    python tensorflow_models.py mlp1024|mlp2048|cnn|tfm|unet|mobilenet graph|xla

The variable T is the number of threads, and STEPS the number of measured steps. The optimizer is
SGD. Images are [batch, height, width, channels], as TensorFlow requires.
"""

import json
import os
import resource
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402  (the environment is read when TensorFlow is imported)
import tensorflow as tf  # noqa: E402

MODEL, MODE = sys.argv[1], sys.argv[2]
if "T" in os.environ:
    tf.config.threading.set_intra_op_parallelism_threads(int(os.environ["T"]))
    tf.config.threading.set_inter_op_parallelism_threads(1)
LEARNING_RATE = 0.01
keras, layers = tf.keras, tf.keras.layers


def perceptron(width):
    return keras.Sequential([layers.Dense(width, "relu") for _ in range(3)] + [layers.Dense(width)])


def convolutional():
    stack = []
    for channels in (64, 128, 256):
        stack += [layers.Conv2D(channels, 3, padding="same", activation="relu") for _ in range(2)] + [layers.MaxPooling2D()]
    return keras.Sequential([*stack, layers.Flatten(), layers.Dense(512, "relu"), layers.Dense(10)])


def norm(x, activation=None):
    x = layers.BatchNormalization(epsilon=1e-5, momentum=0.9)(x)
    return x if activation is None else layers.Activation(activation)(x)


def mobilenet():
    """MobileNetV2 for images of 96 x 96 pixels."""
    x = inputs = keras.Input((96, 96, 3))
    x = norm(layers.Conv2D(32, 3, 2, "same", use_bias=False)(x), "relu6")
    for expansion, channels, n_blocks, stride in [
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ]:
        for block in range(n_blocks):
            step, h = stride if block == 0 else 1, x
            if expansion > 1:
                h = norm(layers.Conv2D(expansion * x.shape[-1], 1, use_bias=False)(h), "relu6")
            h = norm(layers.DepthwiseConv2D(3, step, "same", use_bias=False)(h), "relu6")
            h = norm(layers.Conv2D(channels, 1, use_bias=False)(h))
            x = x + h if step == 1 and x.shape[-1] == channels else h
    x = norm(layers.Conv2D(1280, 1, use_bias=False)(x), "relu6")
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def unet():
    """U-Net of 16 to 256 channels for images of 96 x 96 pixels."""
    def double(x, channels):
        for _ in range(2):
            x = norm(layers.Conv2D(channels, 3, padding="same", use_bias=False)(x), "relu")
        return x

    inputs = keras.Input((96, 96, 3))
    x, skips = double(inputs, 16), []
    for level in range(4):
        skips.append(x)
        x = double(layers.MaxPooling2D()(x), 32 << level)
    for skip in reversed(skips):
        x = double(layers.Concatenate()([skip, layers.Conv2DTranspose(skip.shape[-1], 2, 2)(x)]), skip.shape[-1])
    return keras.Model(inputs, layers.Conv2D(2, 1)(x))


TOKENS, WORDS, WIDTH, HEADS, BLOCKS = 128, 1024, 256, 4, 4


class Block(layers.Layer):
    def __init__(self):
        super().__init__()
        self.norms = [layers.LayerNormalization() for _ in range(2)]
        self.qkv, self.out = layers.Dense(3 * WIDTH), layers.Dense(WIDTH)
        self.up, self.down = layers.Dense(4 * WIDTH, activation=lambda it: tf.nn.gelu(it, True)), layers.Dense(WIDTH)
        self.mask = tf.constant(np.triu(np.full((TOKENS, TOKENS), -1e9, "f"), 1))

    def call(self, x):
        heads = tf.reshape(self.qkv(self.norms[0](x)), (-1, TOKENS, 3, HEADS, WIDTH // HEADS))
        query, key, value = tf.unstack(tf.transpose(heads, (2, 0, 3, 1, 4)))
        scores = tf.matmul(query, key, transpose_b=True) / (WIDTH // HEADS) ** 0.5
        attended = tf.transpose(tf.nn.softmax(scores + self.mask) @ value, (0, 2, 1, 3))
        x = x + self.out(tf.reshape(attended, (-1, TOKENS, WIDTH)))
        return x + self.down(self.up(self.norms[1](x)))


class Transformer(keras.Model):
    def __init__(self):
        super().__init__()
        self.words, self.places = layers.Embedding(WORDS, WIDTH), self.add_weight(shape=(TOKENS, WIDTH))
        self.blocks, self.norm, self.logits = [Block() for _ in range(BLOCKS)], layers.LayerNormalization(), layers.Dense(WORDS)

    def call(self, tokens):
        x = self.words(tokens) + self.places
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))


def model_and_batch():
    random = np.random.default_rng(0)
    normal = lambda *shape: random.standard_normal(shape).astype("f")
    if MODEL.startswith("mlp"):
        width = int(MODEL.removeprefix("mlp"))
        return perceptron(width), normal(512, width), random.integers(0, width, 512)
    if MODEL == "cnn":
        return convolutional(), normal(64, 32, 32, 3), random.integers(0, 10, 64)
    if MODEL == "mobilenet":
        return mobilenet(), normal(16, 96, 96, 3), random.integers(0, 10, 16)
    if MODEL == "unet":
        return unet(), normal(4, 96, 96, 3), random.integers(0, 2, (4, 96, 96))
    tokens = random.integers(0, WORDS, (16, TOKENS))
    return Transformer(), tokens, random.integers(0, WORDS, (16, TOKENS))


def main():
    model, x, y = model_and_batch()
    x, y = tf.constant(x), tf.constant(y)
    model(x)
    variables = model.trainable_variables

    @tf.function(jit_compile=MODE == "xla")
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True)))
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(LEARNING_RATE * tf.convert_to_tensor(gradient))
        return loss

    milliseconds = []
    n_warm_up = 4
    for index in range(n_warm_up + int(os.environ.get("STEPS", 15))):
        started = time.perf_counter()
        loss = float(step())
        if index >= n_warm_up:
            milliseconds.append((time.perf_counter() - started) * 1e3)
    print(json.dumps({
        "ms_median": statistics.median(milliseconds),
        "ms_least": min(milliseconds),
        "resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "loss": loss,
    }))


main()
