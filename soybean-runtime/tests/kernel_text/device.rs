//! Runs the text of kernels on the CPU. Each buffer is an allocation that is no larger than needed.
#![expect(unsafe_code, reason = "kernels work on memory that they are given by address")]

use std::{
    alloc::{Layout, alloc, dealloc},
    ffi::c_void,
    ptr::NonNull,
};

use soybean_codegen::{Address, Call, Generated, Operation, generate_variant, n_variants, prelude};
use soybean_fake_cuda::{Module, Order, Sanitize, compile};
use soybean_plan::DType;

use crate::{
    case::{Case, Data, decoded, encoded},
    reference::scalars,
};

/// Some kernels, compiled together.
pub(crate) struct Unit {
    module: Module,
    generated: Vec<Generated>,
}

/// Memory as on a device: at a multiple of 256 bytes, and initially full of NaN.
pub(crate) struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

/// Returns the text of these kernels.
pub(crate) fn text(cases: &[Case]) -> String {
    text_of(&cases.iter().enumerate().map(|it| generated(it.0, it.1)).collect::<Vec<_>>())
}

fn text_of(generated: &[Generated]) -> String {
    [prelude()].into_iter().chain(generated.iter().map(|it| &it.text[..])).collect()
}

fn generated(number: usize, case: &Case) -> Generated {
    let inputs: Vec<DType> = case.inputs.iter().map(|it| it.dtype).collect();
    let results: Vec<DType> = case.results.iter().map(|it| it.0).collect();
    let call = Call {
        kernel: &case.kernel,
        inputs: &inputs,
        results: &results,
        precision: case.precision,
    };
    let variant = case.variant % n_variants(&call);
    let made = generate_variant(&call, variant, &format!("k{number}"));
    made.unwrap_or_else(|| panic!("no text for {case:?}"))
}

impl Unit {
    pub(crate) fn new(cases: &[Case], sanitize: Sanitize) -> Self {
        Self::of(cases.iter().enumerate().map(|it| generated(it.0, it.1)).collect(), sanitize)
    }

    /// Compiles functions whose names have the numbers of their cases.
    pub(crate) fn of(generated: Vec<Generated>, sanitize: Sanitize) -> Self {
        let library = compile(&text_of(&generated), sanitize).unwrap_or_else(|log| panic!("{log}"));
        Self { module: Module::load(&library).unwrap(), generated }
    }

    /// Returns the results of a case.
    pub(crate) fn run(
        &self,
        number: usize,
        case: &Case,
        order: Order,
    ) -> Result<Vec<Vec<f32>>, String> {
        let generated = &self.generated[number];
        let inputs: Vec<Block> = case.inputs.iter().map(|it| Block::of(&encoded(it))).collect();
        let results: Vec<Block> =
            case.results.iter().map(|(dtype, n)| Block::new(n * dtype.bytes())).collect();
        let workspace = Block::new(generated.workspace_bytes);
        let numbers = Data { dtype: DType::F32, numbers: scalars().to_vec() };
        let scalars = Block::of(&encoded(&numbers));
        let result = |number: usize| match case.reused_by(number) {
            Some(input) => &inputs[input],
            None => &results[number],
        };
        let pointer = |address: &Address| match *address {
            Address::Input(number) => inputs[number].at(0),
            Address::Result(number) => result(number).at(0),
            Address::Scalars => scalars.at(0),
            Address::FirstNonFinite(_) => panic!("expected no results that are checked"),
            Address::Workspace(offset) => {
                assert!(offset.is_multiple_of(256), "the workspace has places at {offset}");
                workspace.at(offset)
            }
        };
        for operation in &generated.operations {
            match operation {
                Operation::Fill { target, n_bytes, value } => {
                    // SAFETY: kernels access only their buffers; the sanitizer checks this function
                    // too.
                    unsafe { pointer(target).cast::<u8>().write_bytes(*value, *n_bytes) };
                }
                Operation::Launch(it) => {
                    let arguments: Vec<_> = it.arguments.iter().map(pointer).collect();
                    let block = [it.block, 1, 1];
                    // SAFETY: as above.
                    unsafe {
                        self.module.launch(
                            &it.function,
                            it.grid,
                            block,
                            it.shared_bytes,
                            &arguments,
                            order,
                        )
                    }?;
                }
            }
        }
        let types = case.results.iter().enumerate();
        Ok(types.map(|(number, it)| decoded(it.0, result(number).bytes())).collect())
    }
}

impl Block {
    pub(crate) fn new(n_bytes: usize) -> Self {
        let layout = Layout::from_size_align(n_bytes.max(1), 256).unwrap();
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc(layout) }).expect("there is enough memory");
        // SAFETY: this many bytes were allocated.
        unsafe { start.write_bytes(0xff, layout.size()) };
        Self { start, layout: Layout::from_size_align(n_bytes, 256).unwrap() }
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        let this = Self::new(bytes.len());
        // SAFETY: this many bytes were allocated, elsewhere.
        unsafe { this.start.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        this
    }

    /// Returns the address of the byte with this number.
    pub(crate) fn at(&self, offset: usize) -> *mut c_void {
        self.start.as_ptr().wrapping_add(offset).cast()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: this many bytes were allocated and written.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.layout.size().max(1), 256).unwrap();
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), layout) };
    }
}
