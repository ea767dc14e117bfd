"""Makes the files of `files/`: `make_files.py FOLDER`.

They are written by NumPy, by Pillow, by PyArrow, and by Python's own modules `array`, `csv`, `gzip`, `json` and `struct`. The tests know what is in them.
"""

import array
import csv
import gzip
import json
import os
import struct
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

folder = sys.argv[1]


def path(*names):
    whole = os.path.join(folder, *names)
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    return whole


def numpy_files():
    numbers = np.arange(30).reshape(5, 3, 2)
    for code in ["b1", "u1", "i1", "<u2", ">i2", "<u4", "<i4", ">i4", "<u8", "<i8", "<f2", "<f4", ">f4", "<f8", ">f8"]:
        kind = np.dtype(code)
        values = numbers % 2 == 1 if code == "b1" else numbers - 10 * (kind.kind in "if")
        name = kind.name + ("_big" if code[0] == ">" else "")
        np.save(path("npy", f"{name}.npy"), values.astype(kind))
        np.save(path("npy", f"{name}_fortran.npy"), np.asfortranarray(values.astype(kind)))
    for version in [1, 2, 3]:
        with open(path("npy", f"version{version}.npy"), "wb") as file:
            np.lib.format.write_array(file, numbers.astype("<f4"), version=(version, 0))
    np.save(path("npy", "scalar.npy"), np.float32(1))
    np.save(path("npy", "complex.npy"), np.zeros(3, "c8"))
    np.save(path("npy", "structured.npy"), np.zeros(3, [("a", "f4"), ("b", "i4")]))
    np.save(path("npy", "nan.npy"), np.array([1, 2, np.nan], "f4"))
    np.save(path("npy", "labels.npy"), np.array([0, 1, 2, 3, 12], "i8"))
    arrays = {"x": (numbers - 10).astype("f8"), "y": np.array([4, 3, 2, 1, 0])}
    np.savez(path("stored.npz"), **arrays)
    np.savez_compressed(path("deflated.npz"), **arrays)


def idx_files():
    pixels = bytes(range(24))
    images = struct.pack(">BBBBIII", 0, 0, 8, 3, 4, 2, 3) + pixels
    labels = struct.pack(">BBBBI4B", 0, 0, 8, 1, 4, 3, 1, 4, 1)
    for name, content in [("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)]:
        with open(path(name), "wb") as file:
            file.write(content)
        with open(path(name + ".gz"), "wb") as file:
            file.write(gzip.compress(content, mtime=0))
    with open(path("doubles.idx"), "wb") as file:
        file.write(struct.pack(">BBBBII4d", 0, 0, 14, 2, 2, 2, 0.5, -1.5, 2.25, 1e10))


def cifar_files():
    """Record `r` has label `r` and pixels `(7 r + i) % 256`."""

    def record(labels, r):
        return array.array("B", labels + [(7 * r + i) % 256 for i in range(3072)])

    for name, records in [("data_batch_1.bin", [0, 1, 2]), ("data_batch_2.bin", [3, 4])]:
        with open(path("cifar10", name), "wb") as file:
            for r in records:
                record([r], r).tofile(file)
    with open(path("cifar100", "train.bin"), "wb") as file:
        for r in range(2):
            record([19 - r, 99 - r], r).tofile(file)


def table():
    with open(path("points.csv"), "w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["x", "y, in metres", "class"])
        writer.writerows([[0.5, -1.25, 2], [1e-3, 3, 0], [7, "8", 1]])
    with open(path("points.csv"), "rb") as file, open(path("points.csv.gz"), "wb") as packed:
        packed.write(gzip.compress(file.read(), mtime=0))


def token_files():
    tokens = [(i * i) % 50_000 for i in range(300)]
    for name, code in [("tokens.u16", "H"), ("tokens.u32", "I")]:
        with open(path(name), "wb") as file:
            array.array(code, tokens).tofile(file)


def images():
    """Left halves are red, right halves blue; the upper half of `gray` is black, its lower half white."""
    colors = Image.new("RGB", (8, 4), (255, 0, 0))
    colors.paste((0, 0, 255), (4, 0, 8, 4))
    gray = Image.new("L", (4, 8), 0)
    gray.paste(255, (0, 4, 4, 8))
    colors.save(path("images", "colors", "a.png"))
    colors.convert("RGBA").save(path("images", "colors", "b.png"))
    colors.convert("P").save(path("images", "colors", "c.png"))
    colors.resize((32, 16), Image.Resampling.NEAREST).save(path("images", "colors", "d.JPG"), quality=95)
    gray.save(path("images", "gray", "a.png"))
    gray.convert("I;16").point(lambda it: it * 257).save(path("images", "gray", "b.png"))
    gray.resize((16, 32), Image.Resampling.NEAREST).save(path("images", "gray", "c.jpeg"), quality=95, progressive=True)
    with open(path("images", "gray", "notes.txt"), "w") as file:
        file.write("no image\n")


def json_lines():
    with open(path("rows.jsonl"), "w") as file:
        for r in range(3):
            row = {"text": f"{r}: “ä”\n", "x": r / 4, "good": r % 2 == 0, "label": r, "matrix": [[r, 1], [2, 3], [4, 5 * r]]}
            file.write(json.dumps(row, ensure_ascii=r == 0) + "\n")
    with open(path("rows.jsonl"), "rb") as file, open(path("rows.jsonl.gz"), "wb") as packed:
        packed.write(gzip.compress(file.read(), mtime=0))


def parquet_files():
    """Row `r` of ten has `r - 4`, or `r` if the column is unsigned; 3 rows are in a group."""
    columns = {}
    for kind in ["int8", "int16", "int32", "int64", "float16", "float32", "float64"]:
        columns[kind] = pa.array(np.arange(-4, 6).astype(kind))
    for kind in ["uint8", "uint16", "uint32", "uint64"]:
        columns[kind] = pa.array(np.arange(10).astype(kind))
    columns["bool"] = pa.array([r % 2 == 1 for r in range(10)])
    columns["vector"] = pa.array([[r, r + 0.5, -r] for r in range(10)], pa.list_(pa.float32()))
    columns["fixed"] = pa.array([[r, -r] for r in range(10)], pa.list_(pa.float32(), 2))
    columns["matrix"] = pa.array([[[r, 1, 2], [3, 4, r]] for r in range(10)], pa.list_(pa.list_(pa.int16())))
    columns["text"] = pa.array([f"{r} ä" for r in range(10)])
    columns["point"] = pa.array([{"x": r, "y": r / 2} for r in range(10)], pa.struct({"x": pa.int32(), "y": pa.float64()}))
    table = pa.table(columns)
    for compression in ["none", "snappy", "gzip", "zstd"]:
        pq.write_table(table, path("parquet", f"{compression}.parquet"), compression=compression, row_group_size=3)
    odd = {
        "null": [1.0, 2.0, None, 4.0],
        "null_text": ["a", None, "b", "c"],
        "empty": [[1], [2], [3], []],
        "uneven": [[1, 2], [3, 4], [5], [6, 7]],
        "unequal": [[[1, 2], [3, 4]], [[1, 2, 3], [4]], [[1, 2], [3, 4]], [[1, 2], [3, 4]]],
        "large": [2**32, 0, 0, 0],
        "largest": pa.array([2**32 - 1, 0, 0, 0], pa.uint32()),
        "not_a_number": [0.0, float("nan"), 0.0, 0.0],
        "date": pa.array([0, 1, 2, 3], pa.date32()),
        "label": [0, 1, 2, 3],
    }
    pq.write_table(pa.table(odd), path("parquet", "odd.parquet"), row_group_size=2)


numpy_files()
idx_files()
cifar_files()
table()
token_files()
images()
json_lines()
parquet_files()
