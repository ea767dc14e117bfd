//! Columns of data as the inputs of a model, by their names.

use soybean_plan::Input;
use soybean_runtime::data::ColumnSpec;

/// Returns for each input the position of its column.
///
/// - If the names of the columns are those of the inputs, in any order, names decide.
/// - If no column has the name of an input, positions decide.
/// - If some have, they must be in the places of their inputs. Positions decide on the others,
///   which must differ in type or size, so that none can be taken for another.
///
/// # Errors
/// A message with all inputs and columns, if neither applies.
pub(crate) fn match_columns(
    inputs: &[Input],
    columns: &[ColumnSpec],
) -> Result<Vec<usize>, String> {
    if columns.len() != inputs.len() {
        let (n_inputs, inputs, found) = (inputs.len(), names_of_inputs(inputs), columns.len());
        return Err(format!("expected {n_inputs} columns ({inputs}), found {found}"));
    }
    let positions = |input: &Input| {
        columns.iter().enumerate().filter(|it| it.1.name == input.name).map(|it| it.0).collect()
    };
    let named: Vec<Vec<usize>> = inputs.iter().map(positions).collect();
    if named.iter().all(|it| it.len() == 1) {
        return Ok(named.concat());
    }
    let others: Vec<usize> = (0..inputs.len()).filter(|it| named[*it].is_empty()).collect();
    let is_in_place = |it: (usize, &Vec<usize>)| it.1.is_empty() || *it.1 == [it.0];
    let has_no_names = others.len() == inputs.len();
    let is_clear = named.iter().enumerate().all(is_in_place) && !has_alike(columns, &others);
    if has_no_names || is_clear {
        return Ok((0..inputs.len()).collect());
    }
    Err(format!(
        "expected columns with the names of the inputs ({}), found {}: a column with the name of an \
         input must be that input; `rename` and `select` of a dataset change names and order",
        names_of_inputs(inputs),
        names_of_columns(columns)
    ))
}

/// Returns a note if only the order of the columns tells which of them is which input.
pub(crate) fn note_on_order(inputs: &[Input], columns: &[ColumnSpec]) -> Option<String> {
    let is_input = |column: &ColumnSpec| inputs.iter().any(|it| it.name == column.name);
    let all: Vec<usize> = (0..columns.len()).collect();
    (!columns.iter().any(is_input) && has_alike(columns, &all)).then(|| {
        format!(
            "the columns {} are taken for the inputs {} in their order, since none has the name of \
             an input",
            names_of_columns(columns),
            names_of_inputs(inputs)
        )
    })
}

/// Checks that held-out data have no column of the training data as another input. Both lists are
/// in the order of the inputs; positions have decided if the names are not those of inputs.
pub(crate) fn check_order(train: &[ColumnSpec], held_out: &[ColumnSpec]) -> Result<(), String> {
    let is_moved = |(place, column): (usize, &ColumnSpec)| {
        let before = train.iter().position(|it| it.name == column.name);
        before.is_some_and(|it| {
            it != place && train.get(place).is_none_or(|it| it.name != column.name)
        })
    };
    if !held_out.iter().enumerate().any(is_moved) {
        return Ok(());
    }
    let (train, held_out) = (names_of_columns(train), names_of_columns(held_out));
    Err(format!("expected columns in the order of the training data, {train}, found {held_out}"))
}

/// Returns whether two of these columns could be taken for each other.
fn has_alike(columns: &[ColumnSpec], places: &[usize]) -> bool {
    let kind = |place: &usize| (columns[*place].dtype, columns[*place].row_elements());
    places.iter().enumerate().any(|(n, it)| places[..n].iter().any(|other| kind(it) == kind(other)))
}

pub(crate) fn names_of_inputs(inputs: &[Input]) -> String {
    let name = |input: &Input| format!("{} {}", input.name, input.tile.shape);
    inputs.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn names_of_columns(columns: &[ColumnSpec]) -> String {
    columns.iter().map(|it| format!("`{}`", it.name)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use soybean_plan::{DType, Shape, Tile, Tiling};

    use super::*;

    fn inputs() -> Vec<Input> {
        let input = |name: &'static str| Input {
            name: name.into(),
            dtype: DType::F32,
            tile: Tile::new(Shape::new(&[8]), Tiling::new(&[])),
            buffer: 0,
            n_classes: None,
            ignored_label: None,
            is_queried: true,
        };
        ["x", "weight", "y"].map(input).into()
    }

    fn columns(names: [&str; 3], dtypes: [DType; 3]) -> Vec<ColumnSpec> {
        let column = |(name, dtype): (&str, DType)| ColumnSpec {
            name: name.to_owned(),
            row: Vec::new(),
            dtype,
        };
        names.into_iter().zip(dtypes).map(column).collect()
    }

    /// All choices of three of these names, also the same one twice.
    fn all_names() -> impl Iterator<Item = [&'static str; 3]> {
        const NAMES: [&str; 6] = ["x", "weight", "y", "features", "target", "w"];
        let n = NAMES.len();
        (0..n.pow(3)).map(move |it| [NAMES[it / n / n], NAMES[it / n % n], NAMES[it % n]])
    }

    /// Guards: no choice of names lets a column with the name of an input become another input, or
    /// leaves it open which of the others is which.
    #[test]
    fn no_column_with_the_name_of_an_input_is_taken_for_another() {
        let inputs = inputs();
        let (mut n_matched, mut n_refused) = (0, 0);
        for names in all_names() {
            let columns = columns(names, [DType::F32; 3]);
            let Ok(positions) = match_columns(&inputs, &columns) else {
                n_refused += 1;
                continue;
            };
            n_matched += 1;
            let mut sorted = positions.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2], "{names:?}");
            let named =
                inputs.iter().zip(&positions).filter(|it| it.0.name == names[*it.1]).count();
            let n_of_inputs = names.iter().filter(|name| inputs.iter().any(|it| it.name == **name));
            assert_eq!(named, n_of_inputs.count(), "{names:?}: {positions:?}");
            // A single column is left to its input, or all are.
            assert!(named != 1, "{names:?}: {positions:?}");
            assert_eq!(note_on_order(&inputs, &columns).is_some(), named == 0, "{names:?}");
        }
        // The orders of the three names, one name replaced in its place by three others, and three
        // other names in any combination.
        assert_eq!((n_matched, n_refused), (6 + 3 * 3 + 27, 216 - 42));
    }

    #[test]
    fn other_types_tell_the_rest_apart() {
        let (inputs, dtypes) = (inputs(), [DType::F32, DType::F32, DType::I32]);
        let matched = |names| match_columns(&inputs, &columns(names, dtypes));
        assert_eq!(matched(["x", "mask", "label"]), Ok(vec![0, 1, 2]));
        assert_eq!(
            matched(["features", "weight", "x"]).unwrap_err(),
            "expected columns with the names of the inputs (x [8], weight [8], y [8]), found \
             `features`, `weight`, `x`: a column with the name of an input must be that input; \
             `rename` and `select` of a dataset change names and order"
        );
        assert!(note_on_order(&inputs, &columns(["a", "b", "c"], dtypes)).is_some());
    }

    #[test]
    fn held_out_columns_are_not_in_another_order() {
        let columns = |names| columns(names, [DType::F32; 3]);
        let check = |held_out| check_order(&columns(["a", "b", "c"]), &columns(held_out));
        assert_eq!(check(["a", "b", "c"]), Ok(()));
        assert_eq!(check(["a2", "b2", "c2"]), Ok(()));
        let message = "expected columns in the order of the training data, `a`, `b`, `c`, found ";
        assert_eq!(check(["a", "c", "b"]).unwrap_err(), format!("{message}`a`, `c`, `b`"));
        assert!(check(["d", "a", "e"]).is_err());
    }
}
