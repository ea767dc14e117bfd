//! The check of an operator: its precisions, its splits and its gradient fit together.

use soybean_plan::{IndexNotation, random};
use soybean_runtime::{Error, ErrorKind};

use super::Operator;
use crate::{Tensor, eager};

/// The most elements of an operand whose slopes are compared.
const MAX_SLOPES: usize = 64;

/// The operands of one trial.
struct Trial<'a> {
    operator: &'a Operator,
    notation: IndexNotation,
    shapes: Vec<Vec<usize>>,
    operands: Vec<Vec<f64>>,
}

/// Checks the operator on random operands of these shapes.
pub(super) fn check(operator: &Operator, shapes: &[Vec<usize>]) -> Result<(), Error> {
    let notation = operator.notation_of(shapes)?;
    let operands = (0..).zip(shapes).map(|(seed, shape)| numbers(seed, shape)).collect();
    let trial = Trial { operator, notation, shapes: shapes.to_vec(), operands };
    let checks = [Trial::precisions, Trial::splits, Trial::gradients];
    checks.into_iter().try_for_each(|it| it(&trial)).map_err(|message| {
        Error::new(ErrorKind::Operator, format!("operator `{}`: {message}", operator.name))
    })
}

#[expect(clippy::cast_possible_truncation, reason = "rounded")]
fn single(number: f64) -> f32 {
    number as f32
}

/// Returns random numbers in single precision of which none is near zero: 0.1..2, or the same below
/// zero.
fn numbers(seed: u64, shape: &[usize]) -> Vec<f64> {
    let n_elements: usize = shape.iter().product();
    let number = |at: u64| {
        let word = random::mixed(random::mixed(seed) ^ at);
        let size = 0.1 + 1.9 * (word >> 11) as f64 / 2.0_f64.powi(53);
        f64::from(single(if word & 1 == 1 { -size } else { size }))
    };
    (0..n_elements as u64).map(number).collect()
}

impl Trial<'_> {
    fn result(&self, shapes: &[Vec<usize>], operands: &[Vec<f64>]) -> (Vec<usize>, Vec<f64>) {
        let function = self.operator.function_in_f64;
        self.operator.compute(&self.notation, shapes, operands, function)
    }

    fn precisions(&self) -> Result<(), String> {
        let (_, expected) = self.result(&self.shapes, &self.operands);
        let operands: Vec<Vec<f32>> =
            self.operands.iter().map(|it| it.iter().map(|it| single(*it)).collect()).collect();
        let function = self.operator.function;
        let (_, found) = self.operator.compute(&self.notation, &self.shapes, &operands, function);
        let found: Vec<f64> = found.into_iter().map(f64::from).collect();
        // Single precision has 24 bits; sums of some thousand terms lose half of them at most.
        close(&found, &expected, 1e-4).map_err(|it| format!("in single precision, {it}"))
    }

    fn splits(&self) -> Result<(), String> {
        let (_, expected) = self.result(&self.shapes, &self.operands);
        let letters = self.notation.letters().into_iter();
        for letter in letters.filter(|it| IndexNotation::is_split(*it)) {
            let extent = self.notation.extent(letter, &self.shapes);
            if extent < 2 {
                continue;
            }
            let middle = extent / 2;
            let (first, rest) = (self.part(letter, 0..middle), self.part(letter, middle..extent));
            let found = match self.notation.result().iter().position(|it| *it == letter) {
                Some(dim) => joined(&first, &rest, dim),
                None => first.1.iter().zip(&rest.1).map(|(x, y)| x + y).collect(),
            };
            close(&found, &expected, 1e-9)
                .map_err(|it| format!("in two parts along `{letter}`, {it}"))?;
        }
        Ok(())
    }

    /// Returns the result for a part of the operands along a letter.
    fn part(&self, letter: char, range: std::ops::Range<usize>) -> (Vec<usize>, Vec<f64>) {
        let (mut shapes, mut operands) = (self.shapes.clone(), self.operands.clone());
        for (number, letters) in self.notation.operands().iter().enumerate() {
            let Some(dim) = letters.iter().position(|it| *it == letter) else { continue };
            let inner: usize = shapes[number][dim + 1..].iter().product();
            let line = shapes[number][dim] * inner;
            let lines = operands[number].chunks(line);
            operands[number] =
                lines.flat_map(|it| it[range.start * inner..range.end * inner].to_vec()).collect();
            shapes[number][dim] = range.len();
        }
        self.result(&shapes, &operands)
    }

    fn gradients(&self) -> Result<(), String> {
        let Some(gradient) = self.operator.gradient else { return Ok(()) };
        let (shape, result) = self.result(&self.shapes, &self.operands);
        let weights = numbers(self.operands.len() as u64, &shape);
        let found: Vec<(Vec<usize>, Vec<f64>)> = eager::scope(|| {
            let operands = self.shapes.iter().zip(&self.operands);
            let others = [(&shape, &result), (&shape, &weights)];
            let tensors: Vec<Tensor> =
                operands.chain(others).map(|(shape, it)| Tensor::new(shape, it)).collect();
            gradient(&tensors).into_iter().map(|it| (it.shape(), it.to_vec())).collect()
        });
        let (expected, n_found) = (self.operands.len(), found.len());
        if expected != n_found {
            return Err(format!("expected the gradients of {expected} operands, found {n_found}"));
        }
        for (number, (shape, found)) in found.iter().enumerate() {
            let (name, expected) = (self.operator.operands[number], &self.shapes[number]);
            if shape != expected {
                return Err(format!("the gradient of `{name}` is {expected:?}, found {shape:?}"));
            }
            let elements: Vec<usize> =
                (0..found.len()).step_by(found.len().div_ceil(MAX_SLOPES).max(1)).collect();
            let slopes: Vec<f64> =
                elements.iter().map(|&it| self.slope(number, it, &weights)).collect();
            let found: Vec<f64> = elements.iter().map(|&it| found[it]).collect();
            close(&found, &slopes, 1e-5)
                .map_err(|it| format!("in the gradient of `{name}`, {it}"))?;
        }
        Ok(())
    }

    /// Returns the derivative of the weighted sum of the result with respect to one element, by
    /// central differences.
    fn slope(&self, operand: usize, element: usize, weights: &[f64]) -> f64 {
        const DISTANCE: f64 = 1e-5;
        let total = |distance: f64| -> f64 {
            let mut operands = self.operands.clone();
            operands[operand][element] += distance;
            let (_, result) = self.result(&self.shapes, &operands);
            result.iter().zip(weights).map(|(x, weight)| x * weight).sum()
        };
        (total(DISTANCE) - total(-DISTANCE)) / (2.0 * DISTANCE)
    }
}

/// Joins two tensors along a dim.
fn joined(first: &(Vec<usize>, Vec<f64>), rest: &(Vec<usize>, Vec<f64>), dim: usize) -> Vec<f64> {
    let line = |it: &(Vec<usize>, Vec<f64>)| it.0[dim..].iter().product::<usize>();
    let lines = first.1.chunks(line(first)).zip(rest.1.chunks(line(rest)));
    lines.flat_map(|(first, rest)| [first, rest].concat()).collect()
}

/// Compares numbers within a tolerance, relative to the largest one.
fn close(found: &[f64], expected: &[f64], tolerance: f64) -> Result<(), String> {
    let largest = expected.iter().fold(1.0_f64, |most, it| most.max(it.abs()));
    for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
        let is_close = (found - expected).abs() <= tolerance * largest;
        if !is_close {
            return Err(format!("element {number}: expected {expected}, found {found}"));
        }
    }
    Ok(())
}
