//! Scalar programs compiled to loops. Each instruction runs once, once for each row, or for each
//! block.

use soybean_plan::{Binary, Instruction, Register, ScalarProgram, Unary};

use super::{
    isa::Isa,
    vector::{Function, Loop, loop_of},
};

/// The frequency with which a value changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Granularity {
    /// Never during a call.
    Call,
    /// From row to row.
    Row,
    /// From element to element.
    Element,
}

/// The number of an entry in the pointer table of a [`Layout`].
pub(crate) type Slot = usize;

/// One loop over a block, or over one number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) run: Loop,
    pub(crate) operands: [Slot; 3],
    pub(crate) result: Slot,
}

/// A single number for a whole row or call: an element of an input, a run-time scalar or a
/// constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Uniform {
    /// The element of this input, as a number.
    Input(usize),
    /// The element of this input, unchanged.
    Integer(usize),
    /// The run-time scalar with this number.
    Scalar(usize),
    /// A constant.
    Constant(f32),
}

/// The pointer table of a program: single numbers first, then blocks of scratch memory, then the
/// blocks of the inputs and the results.
///
/// Each input and each result also has its own block of scratch memory, for when it cannot be used
/// in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) n_numbers: usize,
    pub(crate) n_blocks: usize,
    pub(crate) n_inputs: usize,
    pub(crate) n_results: usize,
}

impl Layout {
    pub(crate) const fn block(&self, number: usize) -> Slot {
        self.n_numbers + number
    }

    pub(crate) const fn input(&self, number: usize) -> Slot {
        self.n_numbers + self.n_blocks + number
    }

    pub(crate) const fn result(&self, number: usize) -> Slot {
        self.input(self.n_inputs) + number
    }

    pub(crate) const fn n_slots(&self) -> usize {
        self.result(self.n_results)
    }
}

/// A [`ScalarProgram`] compiled for inputs of known granularities.
#[derive(Clone, Debug)]
pub(crate) struct LoopProgram {
    pub(crate) layout: Layout,
    /// Numbers to load, with their granularity.
    pub(crate) numbers: Vec<(Granularity, Uniform, Slot)>,
    pub(crate) once: Vec<Operation>,
    pub(crate) each_row: Vec<Operation>,
    pub(crate) each_block: Vec<Operation>,
}

/// An instruction with at most three operands, after fusion.
#[derive(Clone, Copy)]
enum Node {
    Load(Uniform),
    Input(usize),
    Call(Function, [Register; 3]),
    /// Part of another node.
    Fused,
}

impl LoopProgram {
    /// Compiles a program. `granularities` has the granularity of each input.
    pub(crate) fn new(program: &ScalarProgram, granularities: &[Granularity], isa: Isa) -> Self {
        let nodes = fused(program, granularities);
        let mut builder = Builder::new(&nodes, program, granularities, isa);
        for (register, node) in nodes.iter().enumerate() {
            builder.add(register, *node);
        }
        builder.finish(program)
    }
}

/// Returns the operands that a node really has.
fn operands(node: Node) -> impl Iterator<Item = usize> {
    let (registers, n) = match node {
        Node::Load(_) | Node::Input(_) | Node::Fused => ([0; 3], 0),
        Node::Call(Function::Unary(_), registers) => (registers, 1),
        Node::Call(Function::Binary(_), registers) => (registers, 2),
        Node::Call(
            Function::Select
            | Function::MultiplyAdd
            | Function::MultiplySubtract
            | Function::SubtractProduct,
            registers,
        ) => (registers, 3),
    };
    registers.into_iter().take(n).map(usize::from)
}

fn node_of(instruction: Instruction, granularities: &[Granularity]) -> Node {
    match instruction {
        Instruction::Input(input) | Instruction::Integer(input) => {
            let (number, is_integer) =
                (usize::from(input), instruction == Instruction::Integer(input));
            match granularities[number] {
                Granularity::Element => Node::Input(number),
                Granularity::Call | Granularity::Row if is_integer => {
                    Node::Load(Uniform::Integer(number))
                }
                Granularity::Call | Granularity::Row => Node::Load(Uniform::Input(number)),
            }
        }
        Instruction::Scalar(scalar) => Node::Load(Uniform::Scalar(usize::from(scalar))),
        #[expect(clippy::cast_possible_truncation, reason = "rounded to the kernel's precision")]
        Instruction::Constant(value) => Node::Load(Uniform::Constant(value as f32)),
        // Registers of integers hold their bits.
        Instruction::IntegerConstant(value) => {
            Node::Load(Uniform::Constant(f32::from_bits(value.cast_unsigned())))
        }
        Instruction::Unary(unary, a) => Node::Call(Function::Unary(unary), [a; 3]),
        Instruction::Binary(binary, a, b) => Node::Call(Function::Binary(binary), [a, b, b]),
        Instruction::Select(a, b, c) => Node::Call(Function::Select, [a, b, c]),
    }
}

/// Returns the program with products fused into sums and differences that are their only use.
fn fused(program: &ScalarProgram, granularities: &[Granularity]) -> Vec<Node> {
    let mut nodes: Vec<Node> =
        program.instructions.iter().map(|it| node_of(*it, granularities)).collect();
    let mut n_uses = vec![0; nodes.len()];
    for node in &nodes {
        operands(*node).for_each(|operand| n_uses[operand] += 1);
    }
    program.results.iter().for_each(|it| n_uses[usize::from(*it)] += 1);
    for register in 0..nodes.len() {
        let Node::Call(Function::Binary(outer), [a, b, _]) = nodes[register] else { continue };
        let product = |operand: Register| match nodes[usize::from(operand)] {
            Node::Call(Function::Binary(Binary::Multiply), [x, y, _])
                if n_uses[usize::from(operand)] == 1 =>
            {
                Some((x, y))
            }
            _ => None,
        };
        let (function, (x, y), c, gone) = match (outer, product(a), product(b)) {
            (Binary::Add, Some(factors), _) => (Function::MultiplyAdd, factors, b, a),
            (Binary::Add, None, Some(factors)) => (Function::MultiplyAdd, factors, a, b),
            (Binary::Subtract, Some(factors), _) => (Function::MultiplySubtract, factors, b, a),
            (Binary::Subtract, None, Some(factors)) => (Function::SubtractProduct, factors, a, b),
            _ => continue,
        };
        nodes[register] = Node::Call(function, [x, y, c]);
        nodes[usize::from(gone)] = Node::Fused;
    }
    nodes
}

struct Builder {
    isa: Isa,
    layout: Layout,
    granularities: Vec<Granularity>,
    slots: Vec<Slot>,
    input_granularities: Vec<Granularity>,
    /// The last node that reads each register; results live to the end.
    last_uses: Vec<usize>,
    /// The result that may be computed directly into its buffer, for each register.
    result_of: Vec<Option<usize>>,
    free_blocks: Vec<usize>,
    loops: LoopProgram,
}

impl Builder {
    fn new(
        nodes: &[Node],
        program: &ScalarProgram,
        granularities: &[Granularity],
        isa: Isa,
    ) -> Self {
        let mut last_uses: Vec<usize> = (0..nodes.len()).collect();
        for (register, node) in nodes.iter().enumerate() {
            operands(*node).for_each(|operand| last_uses[operand] = register);
        }
        let mut result_of = vec![None; nodes.len()];
        for (number, register) in program.results.iter().enumerate() {
            last_uses[usize::from(*register)] = usize::MAX;
            result_of[usize::from(*register)].get_or_insert(number);
        }
        let n_numbers = nodes.len();
        // An upper bound on blocks; unused ones cost only address space.
        let n_blocks = granularities.len() + program.results.len() + nodes.len();
        let layout = Layout {
            n_numbers,
            n_blocks,
            n_inputs: granularities.len(),
            n_results: program.results.len(),
        };
        let loops = LoopProgram {
            layout,
            numbers: Vec::new(),
            once: Vec::new(),
            each_row: Vec::new(),
            each_block: Vec::new(),
        };
        Self {
            isa,
            layout,
            granularities: Vec::new(),
            slots: Vec::new(),
            input_granularities: granularities.to_vec(),
            last_uses,
            result_of,
            free_blocks: (layout.n_inputs + layout.n_results..n_blocks).rev().collect(),
            loops,
        }
    }

    fn add(&mut self, register: usize, node: Node) {
        let (granularity, slot) = match node {
            Node::Fused => (Granularity::Call, 0),
            Node::Input(input) => (Granularity::Element, self.layout.input(input)),
            Node::Load(uniform) => {
                let granularity = match uniform {
                    Uniform::Input(input) | Uniform::Integer(input) => {
                        self.input_granularities[input]
                    }
                    Uniform::Scalar(_) | Uniform::Constant(_) => Granularity::Call,
                };
                self.loops.numbers.push((granularity, uniform, register));
                (granularity, register)
            }
            Node::Call(function, registers) => self.call(register, node, function, registers),
        };
        self.granularities.push(granularity);
        self.slots.push(slot);
    }

    fn call(
        &mut self,
        register: usize,
        node: Node,
        function: Function,
        registers: [Register; 3],
    ) -> (Granularity, Slot) {
        let granularity =
            operands(node).map(|it| self.granularities[it]).max().unwrap_or(Granularity::Call);
        let slots = registers.map(|it| self.slots[usize::from(it)]);
        if granularity < Granularity::Element {
            let run = loop_of(function, [true; 3], self.isa);
            let list = match granularity {
                Granularity::Call => &mut self.loops.once,
                Granularity::Row | Granularity::Element => &mut self.loops.each_row,
            };
            list.push(Operation { run, operands: slots, result: register });
            return (granularity, register);
        }
        let vectors =
            registers.map(|it| self.granularities[usize::from(it)] == Granularity::Element);
        let result = match self.result_of[register] {
            Some(result) => self.layout.result(result),
            None => self.layout.block(self.free_blocks.pop().expect("one for each node")),
        };
        let run = loop_of(function, vectors, self.isa);
        self.loops.each_block.push(Operation { run, operands: slots, result });
        // Blocks are released after the operation, so that no loop writes over its own operands.
        self.release(node, register);
        (granularity, result)
    }

    fn release(&mut self, node: Node, register: usize) {
        let (first, end) = (self.layout.block(0), self.layout.input(0));
        let mut freed = operands(node).collect::<Vec<_>>();
        freed.sort_unstable();
        freed.dedup();
        for operand in freed {
            let slot = self.slots[operand];
            if self.last_uses[operand] == register && (first..end).contains(&slot) {
                self.free_blocks.push(slot - first);
            }
        }
    }

    /// Copies the results that are not computed directly into their buffers, then packs the blocks.
    fn finish(mut self, program: &ScalarProgram) -> LoopProgram {
        for (number, register) in program.results.iter().enumerate() {
            let register = usize::from(*register);
            let (result, slot) = (self.layout.result(number), self.slots[register]);
            if slot != result {
                let is_vector = self.granularities[register] == Granularity::Element;
                let copy = Function::Unary(Unary::Detach);
                let run = loop_of(copy, [is_vector; 3], self.isa);
                self.loops.each_block.push(Operation { run, operands: [slot; 3], result });
            }
        }
        self.loops.pack()
    }
}

impl LoopProgram {
    /// Drops the blocks at the end that no operation uses.
    fn pack(mut self) -> Self {
        let old = self.layout;
        let (first, end) = (old.block(0), old.input(0));
        let own = old.n_inputs + old.n_results;
        let used =
            self.each_block.iter().map(|it| it.result).filter(|it| (first..end).contains(it));
        self.layout.n_blocks = used.map(|it| it - first + 1).max().unwrap_or(0).max(own);
        let n_dropped = old.n_blocks - self.layout.n_blocks;
        let moved = |slot: Slot| if slot >= end { slot - n_dropped } else { slot };
        for operation in &mut self.each_block {
            operation.operands = operation.operands.map(moved);
            operation.result = moved(operation.result);
        }
        self
    }
}
