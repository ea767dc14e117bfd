//! Fused reductions along rows, together with the maps around them.

use std::{borrow::Cow, fmt};

use super::KernelDescriptor;
use crate::{
    Combine, KernelCategory, ScalarProgram, Shape, Strides, WorkKind, descriptor::descriptor,
};

descriptor! {
    /// Fused rows: a softmax, a norm, a loss or a gradient of these in one kernel.
    ///
    /// The index space consists of rows. Each stage gives a value at each point, or one for each
    /// row, and later stages read it. Reads any number of tensors and writes one for each stored
    /// stage. Results are dense and row-major over the points or over the rows. Everything is
    /// computed in `f32`; only what is stored is rounded. The buffer of a result at points may be
    /// that of a dense input of the same type.
    #[derive(Clone, Debug, PartialEq)]
    pub struct RowFusion {
        /// The index space: the dims that number the rows, then the dims of a row.
        pub extents: Shape,
        /// The number of dims that number the rows.
        pub n_row_dims: usize,
        /// The strides of each input over the index space; a stride of 0 broadcasts.
        pub inputs: Cow<'static, [Strides]>,
        /// The stages, each after those that it reads.
        pub stages: Cow<'static, [RowStage]>,
    }
}

descriptor! {
    /// A stage of a [`RowFusion`].
    #[derive(Clone, Debug, PartialEq)]
    pub struct RowStage {
        /// The kind of value.
        pub form: RowStageForm,
        /// The program, with one result, a number. Its inputs are those of the kernel, and after
        /// them the values of earlier stages.
        pub program: ScalarProgram,
        /// True if the value is a result of the kernel.
        pub is_stored: bool,
    }
}

descriptor! {
    /// The kind of value that a [`RowStage`] gives.
    pub enum RowStageForm {
        /// The result of the program at each point.
        Point = "point",
        /// The result of the program for each row; it reads no values at points.
        Row = "row",
        /// The sum of the program's results over each row.
        Sum = "sum",
        /// The maximum of the program's results over each row.
        Max = "max",
    }
}

impl RowStageForm {
    /// Returns the function that combines values over a row, if there is one.
    #[must_use]
    pub const fn combine(self) -> Option<Combine> {
        match self {
            Self::Point | Self::Row => None,
            Self::Sum => Some(Combine::Sum),
            Self::Max => Some(Combine::Max),
        }
    }
}

impl RowFusion {
    /// Returns the number of rows.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.extents[..self.n_row_dims].iter().product()
    }

    /// Returns the number of points of a row.
    #[must_use]
    pub fn row_length(&self) -> usize {
        self.extents[self.n_row_dims..].iter().product()
    }

    /// Returns the number of values that a stage gives.
    #[must_use]
    pub fn n_values(&self, stage: usize) -> usize {
        match self.stages[stage].form {
            RowStageForm::Point => self.extents.n_elements(),
            RowStageForm::Row | RowStageForm::Sum | RowStageForm::Max => self.n_rows(),
        }
    }

    /// Returns the strides of the values of a stage over the index space.
    #[must_use]
    pub fn stage_strides(&self, stage: usize) -> Strides {
        match self.stages[stage].form {
            RowStageForm::Point => self.extents.dense_strides(),
            RowStageForm::Row | RowStageForm::Sum | RowStageForm::Max => {
                Shape::new(&self.extents[..self.n_row_dims]).dense_strides()
            }
        }
    }

    /// Returns the numbers of the stored stages, in the order of the results.
    pub fn stored(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.stages.len()).filter(|it| self.stages[*it].is_stored)
    }
}

impl KernelDescriptor for RowFusion {
    fn name(&self) -> &'static str {
        "row-fusion"
    }

    fn category(&self) -> KernelCategory {
        KernelCategory::Reduction
    }

    fn work_kind(&self) -> WorkKind {
        WorkKind::Other
    }

    fn n_operations(&self) -> u64 {
        let (n_rows, n_points) = (self.n_rows() as u64, self.extents.n_elements() as u64);
        let of_stage = |stage: &RowStage| {
            let n_operations = stage.program.n_operations();
            match stage.form {
                RowStageForm::Point => n_points * n_operations,
                RowStageForm::Row => n_rows * n_operations,
                RowStageForm::Sum | RowStageForm::Max => n_points * (n_operations + 1),
            }
        };
        self.stages.iter().map(of_stage).sum()
    }

    fn evaluate(&self, inputs: &[&[f64]], scalars: &[f64]) -> Vec<Vec<f64>> {
        let mut values: Vec<Vec<f64>> = inputs.iter().map(|it| it.to_vec()).collect();
        let mut strides = self.inputs.to_vec();
        let points = self.extents.points();
        for (number, stage) in self.stages.iter().enumerate() {
            let of_stage = self.stage_strides(number);
            let combine = stage.form.combine();
            let mut all = vec![combine.map_or(0.0, Combine::identity); self.n_values(number)];
            for point in &points {
                let operands = values.iter().zip(&strides);
                let elements: Vec<f64> =
                    operands.map(|(values, strides)| values[strides.offset(point)]).collect();
                let value = stage.program.evaluate(&elements, scalars)[0];
                let place = &mut all[of_stage.offset(point)];
                *place = combine.map_or(value, |it| it.evaluate(*place, value));
            }
            values.push(all);
            strides.push(of_stage);
        }
        self.stored().map(|it| values[inputs.len() + it].clone()).collect()
    }
}

/// The text form: the rows, their length, and the stages, whose values are named like inputs.
impl fmt::Display for RowFusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, row) = self.extents.split_at(self.n_row_dims);
        write!(f, "rows {rows:?} of {row:?} {{")?;
        for (number, stage) in self.stages.iter().enumerate() {
            let RowStage { form, program, is_stored } = stage;
            let separator = if number == 0 { "" } else { "; " };
            let stored = if *is_stored { "store " } else { "" };
            let (name, value) = (form.name(), self.inputs.len() + number);
            write!(f, "{separator}{stored}x{value} = {name} {program}")?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Binary, Instruction, Unary};

    /// `exp(x - max(x)) / sum(exp(x - max(x)))` over rows of three, and the maximum.
    fn softmax() -> RowFusion {
        let stage = |form, instructions: &[Instruction], is_stored| RowStage {
            form,
            program: ScalarProgram {
                instructions: instructions.to_vec().into(),
                results: vec![u16::try_from(instructions.len() - 1).unwrap()].into(),
            },
            is_stored,
        };
        let binary = |function| Instruction::Binary(function, 0, 1);
        let [x, max, exp, sum] = [0, 1, 2, 3].map(Instruction::Input);
        let shifted = [x, max, binary(Binary::Subtract), Instruction::Unary(Unary::Exp, 2)];
        let extents = Shape::new(&[2, 3]);
        RowFusion {
            extents,
            n_row_dims: 1,
            inputs: vec![extents.dense_strides()].into(),
            stages: vec![
                stage(RowStageForm::Max, &[x], true),
                stage(RowStageForm::Point, &shifted, false),
                stage(RowStageForm::Sum, &[exp], false),
                stage(RowStageForm::Point, &[exp, sum, binary(Binary::Divide)], true),
            ]
            .into(),
        }
    }

    #[test]
    fn stages_read_earlier_ones() {
        let results = softmax().evaluate(&[&[0.0, 0.0, 0.0, 3.0, 3.0, f64::NEG_INFINITY]], &[]);
        assert_eq!(results[0], [0.0, 3.0]);
        let third = 1.0 / 3.0;
        assert_eq!(results[1], [third, third, third, 0.5, 0.5, 0.0]);
    }

    #[test]
    fn the_text_names_stages_like_inputs() {
        let text = "rows [2] of [3] {store x1 = max x0; x2 = point exp(sub(x0, x1)); x3 = sum x2; store x4 = point div(x2, x3)}";
        assert_eq!(softmax().to_string(), text);
    }

    #[test]
    fn operations_count_points_and_rows() {
        // Six points: one maximum, two and one for the exponentials and their sum, one quotient.
        assert_eq!(softmax().n_operations(), 6 * (1 + 2 + 1 + 1));
    }
}
