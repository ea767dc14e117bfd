//! A writer of CUDA C: indented lines, functions with their launches, exact constants.

use std::fmt::Display;

use soybean_plan::DType;

use crate::{Address, Launch, Operation};

/// Text that grows line by line.
#[derive(Debug, Default)]
pub(crate) struct Text {
    text: String,
    depth: usize,
}

impl Text {
    /// Adds a line.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if !line.is_empty() {
            self.text.extend(std::iter::repeat_n("  ", self.depth));
            self.text.push_str(line);
        }
        self.text.push('\n');
    }

    /// Adds a line, a brace, and indented the lines that `body` adds.
    pub(crate) fn block(&mut self, head: impl AsRef<str>, body: impl FnOnce(&mut Self)) {
        self.line(format!("{} {{", head.as_ref()).trim_start());
        self.depth += 1;
        body(self);
        self.depth -= 1;
        self.line("}");
    }

    /// Adds a function and exports it.
    pub(crate) fn function(&mut self, function: &Function, body: impl FnOnce(&mut Self)) {
        self.function_within(function, &function.block.to_string(), body);
    }

    /// Adds a function and exports it. `bounds` are the threads of a block, and perhaps the blocks
    /// of a multiprocessor at least.
    pub(crate) fn function_within(
        &mut self,
        function: &Function,
        bounds: &str,
        body: impl FnOnce(&mut Self),
    ) {
        let Function { name, parameters, threads, .. } = function;
        let parameters: Vec<_> = parameters.iter().map(|it| it.declaration.as_str()).collect();
        let head = format!(
            "extern \"C\" __global__ void __launch_bounds__({bounds}) {name}({})",
            parameters.join(", ")
        );
        self.block(head, body);
        let uses_barriers = match threads {
            Threads::Independent => 0,
            Threads::Cooperating => 1,
        };
        self.line(format!("SOYBEAN_EXPORT({name}, {uses_barriers})"));
    }

    /// Writes constants of this type.
    pub(crate) fn constants(
        &mut self,
        c_type: &str,
        values: impl IntoIterator<Item = (&'static str, impl Display)>,
    ) {
        for (name, value) in values {
            self.line(format!("constexpr {c_type} {name} = {value};"));
        }
    }

    /// Writes the type `Index`, which has room for numbers up to `most`.
    pub(crate) fn index_type(&mut self, most: usize) {
        let index = if i32::try_from(most).is_ok() { "int" } else { "long long" };
        self.line(format!("typedef {index} Index;"));
    }

    /// Returns all of the text.
    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// The signature of a function.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) threads: Threads,
    /// The threads of a block.
    pub(crate) block: u32,
}

/// A parameter of a function, and its argument.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) declaration: String,
    pub(crate) argument: Address,
}

/// The cooperation of the threads of a block, by barriers, shuffles or shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    Independent,
    Cooperating,
}

impl Function {
    /// Returns the operation that runs the function over these blocks, without dynamic shared
    /// memory.
    pub(crate) fn launch(&self, grid: [u32; 3]) -> Operation {
        self.launch_with(grid, 0)
    }

    /// Returns the operation that runs the function over these blocks with dynamic shared memory.
    pub(crate) fn launch_with(&self, grid: [u32; 3], shared_bytes: u32) -> Operation {
        Operation::Launch(Launch {
            function: self.name.clone(),
            grid,
            block: self.block,
            shared_bytes,
            arguments: self.parameters.iter().map(|it| it.argument).collect(),
        })
    }
}

/// Returns `const float* in0` for input 0. The same function may write to its memory.
pub(crate) fn input(number: usize, dtype: DType) -> Parameter {
    let declaration = format!("const {}* in{number}", c_type(dtype));
    Parameter { declaration, argument: Address::Input(number) }
}

/// Returns `float* out0` for result 0.
pub(crate) fn result(number: usize, dtype: DType) -> Parameter {
    let declaration = format!("{}* out{number}", c_type(dtype));
    Parameter { declaration, argument: Address::Result(number) }
}

/// Returns `const float* __restrict__ in0`: nobody writes to its memory while the function runs.
pub(crate) fn input_apart(number: usize, dtype: DType) -> Parameter {
    let declaration = format!("const {}* __restrict__ in{number}", c_type(dtype));
    Parameter { declaration, argument: Address::Input(number) }
}

/// Returns `float* __restrict__ out0`: nobody reads its memory while the function runs.
pub(crate) fn result_apart(number: usize, dtype: DType) -> Parameter {
    let declaration = format!("{}* __restrict__ out{number}", c_type(dtype));
    Parameter { declaration, argument: Address::Result(number) }
}

/// Returns a pointer of this type and name into the workspace.
pub(crate) fn workspace(declaration: impl Into<String>, offset: usize) -> Parameter {
    Parameter { declaration: declaration.into(), argument: Address::Workspace(offset) }
}

/// Returns `unsigned* first_non_finite0`, the word of the checked result of this number.
pub(crate) fn first_non_finite(number: usize) -> Parameter {
    let declaration = format!("unsigned* first_non_finite{number}");
    Parameter { declaration, argument: Address::FirstNonFinite(number) }
}

/// Returns the type of an element in memory.
pub(crate) const fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::Bf16 => "bf16",
        DType::I32 => "int",
    }
}

/// Returns a number rounded to single precision, as a constant with exactly that value.
pub(crate) fn constant(value: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "rounded to the kernel's precision")]
    let value = value as f32;
    if !value.is_finite() {
        return format!("__uint_as_float(0x{:08x}u)", value.to_bits());
    }
    let bits = value.to_bits();
    let sign = if bits >> 31 == 1 { "-" } else { "" };
    let (exponent, mantissa) = ((bits >> 23 & 0xff).cast_signed(), bits & 0x007f_ffff);
    // Subnormal numbers have the minimum exponent.
    let (lead, exponent) = if exponent == 0 { (0, -126) } else { (1, exponent - 127) };
    format!("{sign}0x{lead}.{:06x}p{exponent}f", mantissa << 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_exact() {
        assert_eq!(constant(1.0), "0x1.000000p0f");
        assert_eq!(constant(-0.1), "-0x1.99999ap-4f");
        assert_eq!(constant(0.0), "0x0.000000p-126f");
        assert_eq!(constant(f64::NEG_INFINITY), "__uint_as_float(0xff800000u)");
        assert_eq!(constant(f64::from(f32::from_bits(1))), "0x0.000002p-126f");
        assert_eq!(constant(f64::from(f32::MAX)), "0x1.fffffep127f");
    }

    #[test]
    fn blocks_are_indented() {
        let mut text = Text::default();
        let function = Function {
            name: "f".to_owned(),
            parameters: vec![input(0, DType::Bf16), result(0, DType::F32)],
            threads: Threads::Cooperating,
            block: 64,
        };
        text.function(&function, |text| text.block("if (x)", |text| text.line("y;")));
        let expected = "extern \"C\" __global__ void __launch_bounds__(64) f(const bf16* in0, float* out0) {\n  if (x) {\n    y;\n  }\n}\nSOYBEAN_EXPORT(f, 1)\n";
        assert_eq!(text.finish(), expected);
    }
}
