"""Makes a table of the measurements of `scripts/gpu-check.sh`.

    python gpu_table.py target/gpu-results target/gpu-check/manifest benches/results

Writes and prints `<GPU>-<date>-<commit>.md`, and writes the raw lines to `.jsonl`. The file `gpu` of
the results describes the GPU on which they were taken.
"""

import collections
import json
import re
import sys
from pathlib import Path

MODELS = ("mlp512", "mlp2048", "alexnet", "vgg16", "gpt")
PRECISIONS = ("f32", "tf32", "bf16")


def lines_of(path):
    return [json.loads(it) for it in Path(path).read_text(errors="replace").splitlines() if it.startswith("{")]


class Cases:
    """Returns the lines of all cases."""

    def __init__(self, lines):
        self.lines = lines

    def find(self, program, model, precision, feed, ranks=1):
        wanted = {"program": program, "model": model, "precision": precision, "feed": feed, "ranks": ranks}
        return next((it for it in self.lines if all(it.get(key) == value for key, value in wanted.items())), {})

    def peak(self, precision):
        """Returns the maximum TFLOP/s of large matrix products, of both programs and of each."""
        ours = self.find("soybean", "peak", precision, "fed")
        theirs = self.find("torch eager", "peak", precision, "fed")
        of_ours = ours.get("tflops")
        of_theirs = ours["flops"] / theirs["ms_median"] / 1e9 if "flops" in ours and "ms_median" in theirs else None
        return max((it for it in (of_ours, of_theirs) if it), default=None), of_ours, of_theirs


def number(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def time_of(line):
    return number(line.get("ms_median")) or ("failed" if "error" in line else "")


def ratio(line, ours):
    return line["ms_median"] / ours["ms_median"] if "ms_median" in line and "ms_median" in ours else None


def row_of(cases, model, precision, feed):
    """Returns a row of the main table, or None if nothing was measured."""
    ours, together = (cases.find("soybean", model, precision, feed, ranks) for ranks in (1, 8))
    eager, graphs, compiled = (cases.find(f"torch {mode}", model, precision, feed) for mode in ("eager", "graphs", "compile"))
    compiled = min((graphs, compiled), key=lambda it: it.get("ms_median", float("inf")))
    if not any((ours, together, eager, compiled)):
        return None
    peak, tflops = cases.peak(precision)[0], ours.get("tflops")
    share = 100 * tflops / peak if peak and tflops else None
    return [
        model, precision, feed, time_of(ours), time_of(together), time_of(eager), time_of(compiled),
        number(ratio(eager, ours)), number(ratio(compiled, ours)), number(tflops, "{:.1f}"), number(share, "{:.0f} %"),
        number(ours.get("arena_bytes") and ours["arena_bytes"] / 2**30), number(together.get("moved_bytes", 0) / 1e6 or None, "{:.1f}"),
    ]


def table(head, rows):
    line = lambda cells: "| " + " | ".join(cells) + " |"
    return [line(head), line(["---"] * len(head)), *map(line, rows), ""]


def checked(checks):
    """Returns the outcomes of the checks; those that did not pass have a row each."""
    kinds = collections.Counter(it["check"].split("-")[0] for it in checks if it["outcome"] == "passed")
    passed = ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items()))
    text = [f"Checks that passed: {passed or 'none'}.", ""]
    rows = [[it["check"], it["outcome"], f"{it['seconds']} s", it["summary"]] for it in checks if it["outcome"] != "passed"]
    return text + (table(["check", "", "time", "last words"], [[cell.replace("|", "/") for cell in row] for row in rows]) if rows else [])


def report(cases, checks, description, manifest, date):
    peers = sorted({it["device"] for it in cases.lines if it["program"] != "soybean" and "device" in it})
    text = [f"# {description}, {date}", "", f"Soybean at {manifest};", f"{'; '.join(peers) or 'PyTorch was not measured'}.", ""]
    text += checked(checks)
    feeds = [(model, precision, feed) for feed in ("kept", "fed") for model in MODELS for precision in PRECISIONS]
    rows = [row for it in feeds if (row := row_of(cases, *it))]
    head = ["model", "precision", "inputs", "ms, 1 rank", "ms, 8 ranks", "ms, eager", "ms, compiled"]
    head += ["eager / ours", "compiled / ours", "TFLOP/s", "of the peak", "GiB, 1 rank", "MB moved, 8 ranks"]
    text += ["Median milliseconds of a training step, with all ranks on the one GPU, beside PyTorch:", "", *table(head, rows)]
    rows = [[precision, *(number(it, "{:.1f}") for it in cases.peak(precision)[1:])] for precision in PRECISIONS]
    text += ["The peak: TFLOP/s of products of two 8192 x 8192 matrices.", "", *table(["precision", "soybean", "PyTorch"], rows)]
    launch = cases.find("soybean", "launch", "f32", "fed")
    if launch.get("ms_median"):
        text += [
            f"A training step with next to no work takes {1e3 * launch['ms_median']:.0f} microseconds, waiting for its end",
            f"included; the host hands it to the GPU in {launch['launch_us']:.0f}.",
            "",
        ]
    faults = [f"- {it['program']}, {it['model']}, {it['precision']}, {it['ranks']} ranks, {it['feed']}: {it['error']}" for it in cases.lines if "error" in it]
    text += ["Not measured:", "", *faults, ""] if faults else []
    return "\n".join(text)


def write_table(results, manifest, folder):
    read = lambda name: [line for path in sorted((Path(results) / name).glob("*.json")) for line in lines_of(path)]
    lines, checks = read("cases"), read("checks")
    description, date = Path(results, "gpu").read_text().splitlines()[:2]
    commit = Path(manifest).read_text().splitlines()[0]
    text = report(Cases(lines), checks, description, commit, date)
    gpu = re.sub(r"[^A-Za-z0-9]+", "-", description.split(",")[0]).strip("-").lower()
    name = f"{gpu}-{date}-{commit.split()[1][:8]}"
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(it) + "\n" for it in checks + lines))
    print(text)


def main():
    match sys.argv[1:]:
        case [results, manifest, folder]:
            write_table(results, manifest, folder)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
