//! Checks of batches: the number of tensors, their types and lengths, and the range of labels.

use std::ops::Range;

use soybean_plan::Input;

use crate::{Error, ErrorKind, View};

/// Checks a batch. Labels are checked in these rows, which are read.
pub(super) fn check_batch(
    inputs: &[Input],
    rows: &[Range<usize>],
    batch: &[View<'_>],
) -> Result<(), Error> {
    let error = |message: String| Err(Error::new(ErrorKind::Batch, message));
    check_count(inputs, batch)?;
    for (input, view) in inputs.iter().zip(batch) {
        let (name, shape) = (&input.name, input.tile.shape);
        let (dtype, n_elements) = (input.dtype, shape.n_elements());
        if view.dtype() != dtype {
            return error(format!("input `{name}`: expected {dtype}, found {}", view.dtype()));
        }
        if view.n_elements() != n_elements {
            let found = view.n_elements();
            return error(format!(
                "input `{name}`: expected {n_elements} elements for shape {shape}, found {found}"
            ));
        }
        check_labels(input, rows, *view)?;
    }
    Ok(())
}

/// Checks that there is one tensor for each input.
pub(crate) fn check_count(inputs: &[Input], batch: &[View<'_>]) -> Result<(), Error> {
    if inputs.len() == batch.len() {
        return Ok(());
    }
    let names: Vec<_> = inputs.iter().map(|it| it.name.as_ref()).collect();
    let (expected, names, found) = (inputs.len(), names.join(", "), batch.len());
    let message = format!("expected a batch of {expected} tensors ({names}), found {found}");
    Err(Error::new(ErrorKind::Batch, message))
}

/// Checks the labels in these rows, or the only one of a scalar.
pub(crate) fn check_labels(
    input: &Input,
    rows: &[Range<usize>],
    view: View<'_>,
) -> Result<(), Error> {
    let (Some(n_classes), View::I32(labels)) = (input.n_classes, view) else { return Ok(()) };
    let n_each: usize = input.tile.shape.iter().skip(1).product();
    let is_class = |label: i32| usize::try_from(label).is_ok_and(|label| label < n_classes);
    let is_bad = |label: &i32| !is_class(*label) && input.ignored_label != Some(*label);
    let of_scalar = 0..1;
    let rows = if input.tile.shape.is_empty() { std::slice::from_ref(&of_scalar) } else { rows };
    let bad = rows.iter().find_map(|rows| {
        let (start, end) = (rows.start * n_each, labels.len().min(rows.end * n_each));
        Some(start + labels.get(start..end)?.iter().position(is_bad)?)
    });
    let Some(bad) = bad else { return Ok(()) };
    let (name, row, label) = (&input.name, bad / n_each, labels[bad]);
    let or_ignored = input.ignored_label.map_or_else(String::new, |it| format!(" or {it}"));
    let message = format!(
        "input `{name}`, row {row}: expected a label in 0..{n_classes}{or_ignored}, found {label}"
    );
    Err(Error::new(ErrorKind::Batch, message))
}

#[cfg(test)]
mod tests {
    use std::slice;

    use soybean_plan::{DType, Placement, Shape, Tile, Tiling};

    use super::*;

    #[test]
    fn labels_that_are_not_read_are_not_checked() {
        let whole = [Placement::Replicated; 2];
        let shape = Shape::new(&[4, 2]);
        let input = Input {
            name: "y".into(),
            dtype: DType::I32,
            tile: Tile::new(shape, Tiling::new(&whole)),
            buffer: 0,
            n_classes: Some(3),
            ignored_label: None,
            is_queried: true,
        };
        let labels = [9, 9, 0, 1, 2, 7, 9, 9];
        let check = |rows: &[Range<usize>]| {
            let checked = check_batch(slice::from_ref(&input), rows, &[View::I32(&labels)]);
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(check(&[0..0, 1..2]), Ok(()));
        assert_eq!(check(&[]), Ok(()));
        let bad = |row, label| {
            Err(format!("input `y`, row {row}: expected a label in 0..3, found {label}"))
        };
        assert_eq!(check(&[1..2, 2..3]), bad(2, 7));
        assert_eq!(check(&[1..2, 3..4]), bad(3, 9));
    }

    /// Returns an input of labels below 3 on two ranks.
    fn labels(shape: &[usize], ignored_label: Option<i32>) -> Input {
        Input {
            name: "y".into(),
            dtype: DType::I32,
            tile: Tile::new(Shape::new(shape), Tiling::new(&[Placement::Replicated])),
            buffer: 0,
            n_classes: Some(3),
            ignored_label,
            is_queried: true,
        }
    }

    #[test]
    fn the_label_of_a_scalar_is_checked() {
        let input = labels(&[], None);
        let check =
            |label: i32| check_batch(slice::from_ref(&input), &[], &[View::I32(&[label])]).is_ok();
        assert_eq!([check(2), check(3)], [true, false]);
    }

    #[test]
    fn ignored_labels_are_no_faults() {
        let input = labels(&[3], Some(-100));
        let check = |labels: &[i32]| {
            let views = [View::I32(labels)];
            let checked = check_batch(slice::from_ref(&input), &[0..1, 1..3], &views);
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(check(&[2, -100, 0]), Ok(()));
        let message = "input `y`, row 1: expected a label in 0..3 or -100, found -1";
        assert_eq!(check(&[2, -1, -100]), Err(message.to_owned()));
    }
}
