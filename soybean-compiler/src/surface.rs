//! The operators that users call: one table, each row built from the primitive operators.

mod activation;
mod along;
pub(crate) mod arguments;
mod arithmetic;
pub(crate) mod attention;
mod batch_norm;
mod binary_cross_entropy;
mod broadcast;
mod comparison;
mod conversion;
mod convolution;
mod creation;
mod cross_entropy;
mod ctc;
pub(crate) mod custom;
mod dropout;
mod einsum;
mod indexing;
mod joining;
mod labels;
mod layout;
mod loss;
mod noise;
mod norm;
mod ordering;
mod padding;
mod pooling;
mod product;
mod pytorch;
mod reduction;
mod resizing;
pub(crate) mod sample;
pub(crate) mod share;
mod slicing;
mod softmax;
mod storage;
mod volumes;

use soybean_plan::{ScalarProgram, Shape};

use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::elementwise::add_elementwise,
    operators::elementwise::all_dims,
    signature::FactorId,
    value::Value,
};

pub use pytorch::pytorch_counterpart;

use arguments::Arguments;
use sample::{Sample, SampleArgument};

/// One operator of the surface.
pub(crate) struct Row {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its result, in one line.
    pub(crate) doc: &'static str,
    /// The names of its arguments; a method's first is the receiver.
    pub(crate) arguments: &'static [&'static str],
    /// Builds it.
    pub(crate) build: fn(&mut Builder, &Arguments<'_>) -> Result<Argument, CallDiagnostic>,
    /// Calls by which conformance tests try it.
    pub(crate) samples: &'static [&'static [SampleArgument]],
}

/// The syntax of an operator's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `x.relu()`
    Method,
    /// `concat([x, y], 0)`
    Function,
}

/// Operators that have much in common.
pub(crate) struct Family {
    /// The heading in the list of operators.
    pub(crate) name: &'static str,
    /// The module that defines them.
    pub(crate) module: &'static str,
    /// The syntax of their calls.
    pub(crate) form: Form,
    /// The operators.
    pub(crate) rows: &'static [Row],
}

macro_rules! families {
    ($($name:literal, $module:ident, $form:ident;)*) => {
        /// All operators, family by family.
        pub(crate) const FAMILIES: &[Family] = &[$(Family {
            name: $name,
            module: stringify!($module),
            form: Form::$form,
            rows: $module::TABLE,
        },)*];
    };
}

families! {
    "Arithmetic", arithmetic, Method;
    "Functions of each element", activation, Method;
    "Comparisons and choices", comparison, Method;
    "Products of matrices", product, Method;
    "Convolution", convolution, Method;
    "Pooling", pooling, Method;
    "Volumes", volumes, Method;
    "Images of another size", resizing, Method;
    "Index notation", einsum, Method;
    "Reductions", reduction, Method;
    "Along a dim", along, Method;
    "In order", ordering, Method;
    "Normalization", norm, Method;
    "Normalization over the batch", batch_norm, Method;
    "Dropout", dropout, Method;
    "Random tensors", noise, Method;
    "Attention", attention, Method;
    "Losses of classes", cross_entropy, Method;
    "Losses of two classes", binary_cross_entropy, Method;
    "Losses of sequences", ctc, Method;
    "Losses and similarities", loss, Method;
    "Labels and indices", labels, Method;
    "Elements by their indices", indexing, Method;
    "Shapes", layout, Method;
    "Parts of tensors", slicing, Method;
    "Tensors with more around them", padding, Method;
    "Tensors joined", joining, Function;
    "Tensors of numbers", creation, Function;
    "Types", conversion, Method;
    "Storage", storage, Method;
}

/// Returns the row of this name, and the syntax of its calls. Besides those of the families, there
/// are calls that the operators of users, functions of scores and shared parameters consist of.
pub(crate) fn find(name: &str) -> Option<(Form, &'static Row)> {
    let all = FAMILIES.iter().flat_map(|family| family.rows.iter().map(|row| (family.form, row)));
    let inner = [custom::TABLE, attention::score::TABLE, share::TABLE].into_iter().flatten();
    let mut all = all.chain(inner.map(|row| (Form::Function, row)));
    all.find(|(_, row)| row.name == name)
}

/// The description of an operator that users can call.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its name.
    pub name: &'static str,
    /// The syntax of a call: `input.relu()`.
    pub call: String,
    /// Its result, in one line.
    pub doc: &'static str,
    /// Its heading in the documentation.
    pub family: &'static str,
    /// The name of the module that defines it.
    pub module: &'static str,
}

/// Returns all operators that users can call, family by family.
#[must_use]
pub fn operator_descriptions() -> Vec<Description> {
    let describe = |family: &Family, row: &Row| Description {
        name: row.name,
        call: call_text(family.form, row),
        doc: row.doc,
        family: family.name,
        module: family.module,
    };
    FAMILIES
        .iter()
        .flat_map(|family| family.rows.iter().map(move |row| describe(family, row)))
        .collect()
}

fn call_text(form: Form, row: &Row) -> String {
    let (name, arguments) = (row.name, row.arguments);
    match form {
        Form::Method => format!("{}.{name}({})", arguments[0], arguments[1..].join(", ")),
        Form::Function => format!("{name}({})", arguments.join(", ")),
    }
}

/// Returns the names of all operators that users can call.
#[must_use]
pub fn operator_names() -> Vec<&'static str> {
    names(|_| true)
}

/// Returns the names of the operators that are called as functions of arrays of tensors.
#[must_use]
pub fn function_names() -> Vec<&'static str> {
    names(|form| form == Form::Function)
}

/// Returns the names of the operators that are methods of tensors.
#[must_use]
pub fn method_names() -> Vec<&'static str> {
    names(|form| form == Form::Method)
}

fn names(is_wanted: fn(Form) -> bool) -> Vec<&'static str> {
    let wanted = FAMILIES.iter().filter(|family| is_wanted(family.form));
    wanted.flat_map(|family| family.rows.iter()).map(|row| row.name).collect()
}

/// Returns the calls by which conformance tests try every operator.
#[must_use]
pub fn operator_samples() -> Vec<Sample> {
    let rows = FAMILIES.iter().flat_map(|family| family.rows.iter());
    rows.flat_map(|row| {
        row.samples.iter().map(|arguments| Sample { operator: row.name, arguments })
    })
    .collect()
}

/// Adds a map over operands that each have all dims of the shape, or those in its list.
pub(crate) fn map(
    builder: &mut Builder,
    extents: Shape,
    operands: &[(Value, Vec<FactorId>)],
    program: &ScalarProgram,
) -> Value {
    let (values, ids): (Vec<Value>, Vec<Vec<FactorId>>) = operands.iter().cloned().unzip();
    add_elementwise(&mut builder.graph, extents, &ids, program, &values)
}

/// Adds a map of one operand.
pub(crate) fn map_one(builder: &mut Builder, value: Value, program: &ScalarProgram) -> Value {
    let shape = builder.shape(value);
    map(builder, shape, &[(value, all_dims(&shape))], program)
}
