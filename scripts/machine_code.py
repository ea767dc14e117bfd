#!/usr/bin/env python3
"""Reports what NVIDIA's compiler made of kernels: registers, stack, and the instructions of loops.

A file is a cubin, which nvdisasm disassembles, or text that `nvdisasm FILE.cubin` printed. Neither
NVRTC, which makes cubins, nor nvdisasm needs a GPU. Both are wheels: nvidia-cuda-nvrtc and
nvidia-cuda-nvdisasm.

The main loop of a kernel is the innermost loop with the most products: instructions of tensor
cores, or fused multiply-adds if there are none. Of several such loops it is the shortest, since
loops over tiles that need no mask are copies of the others without it. Loops inside the main loop
count once, and their number is reported. Needs only the standard library.
"""

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field

TENSOR = re.compile(r"^(HMMA|IMMA|DMMA|QMMA|OMMA|HGMMA|IGMMA|QGMMA|UTCHMMA|UTCQMMA)\b")
MULTIPLY_ADD = re.compile(r"^(FFMA|FFMA2|HFMA2|DFMA)\b")
SPILL = re.compile(r"^(LDL|STL)\b")
SECTION = re.compile(r"^\s*\.section\s+(\S+?),")
LABEL = re.compile(r"^(\.L_\S+?|\.text\.\S+?):")
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:(@\S+)\s+)?([A-Z][A-Z0-9_.]*)(.*?);")
TARGET = re.compile(r"\.L_[A-Za-z0-9_]+")
NUMBER = re.compile(r"(0x[0-9a-f]+|\d+)")


@dataclass
class Instruction:
    """An instruction: whether a predicate guards it, its opcode with suffixes, and its operands."""

    guarded: bool
    opcode: str
    operands: str

    def is_jump(self):
        return self.opcode.split(".")[0] in ("BRA", "BRX", "JMP", "JMX", "EXIT", "RET")

    def targets(self):
        """Returns the labels at which the program may go on."""
        is_branch = self.opcode.split(".")[0] in ("BRA", "BRX", "JMP", "JMX", "WARPSYNC")
        return TARGET.findall(self.operands) if is_branch else []

    def goes_on(self):
        """Returns true if the next instruction may follow."""
        # `BRA P0, label` and `BRA.DIV UR4, label` have conditions besides the guard.
        has_condition = self.guarded or ("," in self.operands and self.opcode.startswith("BRA"))
        return has_condition or not self.is_jump()


@dataclass
class Kernel:
    """A function in machine code."""

    name: str
    registers: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0
    threads: int = 0  # of a block, at most
    instructions: list = field(default_factory=list)
    labels: dict = field(default_factory=dict)  # of the instructions that they precede


@dataclass
class Loop:
    """A natural loop: the numbers of its instructions, and how many loops are inside it."""

    members: frozenset
    n_inner: int = 0


def disassembled(path, nvdisasm):
    """Returns the text of a cubin or of a file of text."""
    with open(path, "rb") as file:
        start = file.read(4)
    if start != b"\x7fELF":
        with open(path, encoding="utf-8") as file:
            return file.read()
    return subprocess.run([nvdisasm, path], check=True, capture_output=True, text=True).stdout


def kernels(text):
    """Returns the kernels of a disassembled cubin, in the order of their names."""
    found, section, attribute, name = {}, "", "", None
    for line in text.splitlines():
        if match := SECTION.match(line):
            section, attribute = match[1], ""
            if section.startswith(".text."):
                found.setdefault(section[6:], Kernel(section[6:]))
        elif "nvinfo : " in line:
            attribute = line.split("nvinfo : ")[1].strip()
            if attribute == "EIATTR_MAX_THREADS":
                name = section.removeprefix(".nv.info.")
                found.setdefault(name, Kernel(name)).threads = 1
        elif match := re.search(r"index@\(([^)]+)\)", line):
            name = match[1]
        elif attribute in ("EIATTR_FRAME_SIZE", "EIATTR_REGCOUNT") and ".word" in line:
            kernel = found.setdefault(name, Kernel(name))
            number = int(NUMBER.search(line.split(".word")[1])[1], 0)
            if attribute == "EIATTR_FRAME_SIZE":
                kernel.stack_bytes = number
            else:
                kernel.registers = number
        elif attribute == "EIATTR_MAX_THREADS" and ".word" in line:
            found[name].threads *= int(NUMBER.search(line.split(".word")[1])[1], 0)
        elif section.startswith(".nv.shared.") and (match := re.search(r"\.zero\s+(\d+)", line)):
            shared = found.setdefault(section[11:], Kernel(section[11:]))
            shared.shared_bytes += int(match[1])
        elif section.startswith(".text."):
            add_line(found[section[6:]], line)
    return [it for _, it in sorted(found.items()) if it.instructions]


def add_line(kernel, line):
    """Adds a label or an instruction."""
    if match := LABEL.match(line):
        kernel.labels[match[1]] = len(kernel.instructions)
    elif match := INSTRUCTION.match(line):
        kernel.instructions.append(Instruction(bool(match[1]), match[2], match[3]))


def successors(kernel):
    """Returns the first instructions of blocks, in order, and the successors of each block."""
    starts, n = {0}, len(kernel.instructions)
    for number, it in enumerate(kernel.instructions):
        targets = [kernel.labels[label] for label in it.targets() if label in kernel.labels]
        starts.update(targets)
        if targets or it.is_jump():
            starts.add(number + 1)
    starts = sorted(it for it in starts if it < n)
    block_at = {start: block for block, start in enumerate(starts)}
    following = []
    for start, end in zip(starts, starts[1:] + [n]):
        last = kernel.instructions[end - 1]
        next_ones = [kernel.labels[label] for label in last.targets() if label in kernel.labels]
        if last.goes_on():
            next_ones.append(end)
        following.append(sorted({block_at[it] for it in next_ones if it < n}))
    return starts, following


def dominators(following):
    """Returns for each block the blocks on all ways to it, as bits; 0 if there is no way."""
    n = len(following)
    before = [[] for _ in range(n)]
    for block, next_ones in enumerate(following):
        for it in next_ones:
            before[it].append(block)
    everything = (1 << n) - 1
    found = [1] + [everything] * (n - 1)
    changed = True
    while changed:
        changed = False
        for block in range(1, n):
            common = everything
            for it in before[block]:
                common &= found[it]
            common |= 1 << block
            changed |= common != found[block]
            found[block] = common
    return found, before


def loops(kernel):
    """Returns the natural loops of a kernel."""
    starts, following = successors(kernel)
    dominated_by, before = dominators(following)
    bodies = {}
    for block, next_ones in enumerate(following):
        for head in next_ones:
            if not dominated_by[block] >> head & 1:
                continue
            body, waiting = bodies.setdefault(head, {head}), [block]
            while waiting:
                it = waiting.pop()
                if it not in body:
                    body.add(it)
                    waiting.extend(before[it])
    ends = starts[1:] + [len(kernel.instructions)]
    found = []
    for body in bodies.values():
        members = frozenset(i for it in body for i in range(starts[it], ends[it]))
        n_inner = sum(head in body for head in bodies) - 1
        found.append(Loop(members, n_inner))
    return found


def opcodes(kernel, members=None):
    """Returns the number of instructions by opcode, without suffixes."""
    members = range(len(kernel.instructions)) if members is None else members
    return Counter(kernel.instructions[it].opcode.split(".")[0] for it in members)


def main_loop(kernel):
    """Returns the main loop of a kernel and the number of its products, or None and 0."""
    every = [it.opcode for it in kernel.instructions]
    product = TENSOR if any(TENSOR.match(it) for it in every) else MULTIPLY_ADD

    def n_products(loop):
        return sum(bool(product.match(every[it])) for it in loop.members)

    working = [it for it in loops(kernel) if n_products(it) > 0]
    innermost = [
        it for it in working if not any(other.members < it.members for other in working)
    ]
    best = min(innermost, key=lambda it: (-n_products(it), len(it.members)), default=None)
    return best, n_products(best) if best else 0


def occupancy(kernel):
    """Returns the share of a multiprocessor's 64 warps that can be resident, as CUDA's occupancy
    calculator has it for compute capability 8.0 and 9.0: 65,536 registers, given to warps in steps
    of 256, and at most 32 blocks. Dynamic shared memory is not part of a cubin, and not counted."""
    if not kernel.threads or not kernel.registers:
        return None
    warps = -(-kernel.threads // 32)
    registers = -(-kernel.registers * 32 // 256) * 256 * warps
    blocks = min(32, 64 // warps, 65536 // registers)
    if kernel.shared_bytes:
        blocks = min(blocks, 164 * 1024 // (kernel.shared_bytes + 1024))
    return blocks * warps / 64


def accesses(kernel, opcode):
    """Returns the number of loads from global memory (LDG) or of stores (STG) by width in bits."""
    widths = Counter()
    for it in kernel.instructions:
        if it.opcode.startswith(opcode):
            suffixes = it.opcode.split(".")
            wide = next((int(x) for x in suffixes if x in ("64", "128", "256")), None)
            narrow = next((int(x[1:]) for x in suffixes if x in ("U8", "S8", "U16", "S16")), 32)
            widths[wide or narrow] += 1
    return dict(sorted(widths.items()))


def analysis(kernel):
    """Returns the figures of a kernel as a dictionary."""
    loop, n_products = main_loop(kernel)
    spills = sum(bool(SPILL.match(it.opcode)) for it in kernel.instructions)
    figures = {
        "name": kernel.name,
        "registers": kernel.registers,
        "stack_bytes": kernel.stack_bytes,
        "spills": spills,
        "shared_bytes": kernel.shared_bytes,
        "threads": kernel.threads,
        "occupancy": occupancy(kernel),
        "loads": accesses(kernel, "LDG"),
        "stores": accesses(kernel, "STG"),
        "instructions": len(kernel.instructions),
        "loop_instructions": len(loop.members) if loop else 0,
        "loop_products": n_products,
        "per_product": len(loop.members) / n_products if n_products else None,
        "inner_loops": loop.n_inner if loop else 0,
        "loop_opcodes": dict(opcodes(kernel, loop.members).most_common()) if loop else {},
    }
    return figures


def table(rows):
    """Returns the figures of kernels as lines of text."""
    head = ("kernel", "regs", "stack", "spills", "shared", "loop", "products", "each", "inner")
    lines = [head + ("all", "loads", "stores")]
    for it in rows:
        each = "-" if it["per_product"] is None else f"{it['per_product']:.2f}"
        lines.append(
            (it["name"], it["registers"], it["stack_bytes"], it["spills"], it["shared_bytes"])
            + (it["loop_instructions"], it["loop_products"], each, it["inner_loops"])
            + (it["instructions"], by_width(it["loads"]), by_width(it["stores"]))
        )
    width = max(len(line[0]) for line in lines)
    return [
        f"{line[0]:<{width}}" + "".join(f" {cell!s:>8}" for cell in line[1:]) for line in lines
    ]


def by_width(numbers):
    """Returns numbers by width as text: `4x128` for four of 128 bits."""
    return ",".join(f"{n}x{width}" for width, n in numbers.items()) or "none"


def summary(files):
    """Returns a line for each file: its kernels, and the worst of each figure."""
    lines = [("file", "kernels", "regs", "stack", "spills", "occupancy", "16-byte loads", "each")]
    for path, rows in files:
        most = lambda key: max((it[key] for it in rows), default=0)
        lowest = min((it["occupancy"] for it in rows if it["occupancy"]), default=None)
        n_loads = sum(sum(it["loads"].values()) for it in rows)
        n_wide = sum(n for it in rows for width, n in it["loads"].items() if width >= 128)
        on_tensor_cores = [it for it in rows if any(TENSOR.match(op) for op in it["loop_opcodes"])]
        each = max((it["per_product"] for it in on_tensor_cores), default=None)
        lines.append(
            (path.split("/")[-1].removesuffix(".cubin"), len(rows), most("registers"))
            + (most("stack_bytes"), sum(it["spills"] for it in rows))
            + ("-" if lowest is None else f"{100 * lowest:.0f} %", f"{n_wide} of {n_loads}")
            + ("-" if each is None else f"{each:.2f}",)
        )
    widths = [max(len(str(line[at])) for line in lines) for at in range(len(lines[0]))]
    cells = lambda line: (f"{cell!s:>{width}}" for cell, width in zip(line[1:], widths[1:]))
    return [f"{line[0]:<{widths[0]}} " + " ".join(cells(line)) for line in lines]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a cubin, or nvdisasm's output")
    parser.add_argument("--nvdisasm", default="nvdisasm", help="the disassembler (%(default)s)")
    parser.add_argument("--kernel", default="", help="only kernels whose names have this regex")
    parser.add_argument("--opcodes", action="store_true", help="list the main loops' opcodes")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--summary", action="store_true", help="one line for each file")
    parser.add_argument("--max-stack", type=int, metavar="BYTES", help="fail if a kernel has more")
    arguments = parser.parse_args()
    files = []
    for path in arguments.files:
        found = kernels(disassembled(path, arguments.nvdisasm))
        files.append((path, [analysis(it) for it in found if re.search(arguments.kernel, it.name)]))
    rows = [it for _, of_file in files for it in of_file]
    report(rows, files, arguments)
    most = arguments.max_stack
    above = [] if most is None else [it["name"] for it in rows if it["stack_bytes"] > most]
    return f"expected at most {most} bytes of stack, found more in {', '.join(above)}" if above else 0


def report(rows, files, arguments):
    """Prints the figures in the form that is asked for."""
    if arguments.summary:
        print("\n".join(summary(files)))
        return
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    print("\n".join(table(rows)))
    for it in rows if arguments.opcodes else []:
        counts = ", ".join(f"{name} {n}" for name, n in it["loop_opcodes"].items())
        print(f"{it['name']}: {counts}")


if __name__ == "__main__":
    sys.exit(main())
