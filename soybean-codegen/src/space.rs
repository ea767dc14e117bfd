//! Index spaces with as few dims as their operands allow, and offsets of points in operands, as
//! text.

use soybean_plan::Strides;

use crate::text::Text;

/// A dim of an index space that several operands share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) extent: usize,
    /// One stride for each operand, in elements.
    pub(crate) strides: Vec<usize>,
}

/// Returns the dims of a space, outermost first and at least one, without those of extent 1.
/// Neighbors are merged if every operand steps through both as through one.
pub(crate) fn axes(extents: &[usize], operands: &[Strides]) -> Vec<Axis> {
    let axis = |(dim, extent): (usize, &usize)| Axis {
        extent: *extent,
        strides: operands.iter().map(|it| it.0[dim]).collect(),
    };
    let mut axes = joined(extents.iter().enumerate().map(axis));
    if axes.is_empty() {
        axes.push(Axis { extent: 1, strides: vec![0; operands.len()] });
    }
    axes
}

/// Returns these dims without those of extent 1, and with neighbors merged.
pub(crate) fn joined(axes: impl IntoIterator<Item = Axis>) -> Vec<Axis> {
    let mut joined: Vec<Axis> = Vec::new();
    for axis in axes.into_iter().filter(|it| it.extent != 1) {
        match joined.last_mut() {
            Some(outer) if steps_through(&outer.strides, &axis.strides, axis.extent) => {
                let extent = outer.extent * axis.extent;
                *outer = Axis { extent, ..axis };
            }
            _ => joined.push(axis),
        }
    }
    joined
}

fn steps_through(outer: &[usize], inner: &[usize], extent: usize) -> bool {
    outer.iter().zip(inner).all(|(outer, inner)| *outer == inner * extent)
}

/// Returns the number of points.
pub(crate) fn n_points(axes: &[Axis]) -> usize {
    axes.iter().map(|it| it.extent).product()
}

/// Returns true if the elements of an operand are contiguous in the order of the points.
pub(crate) fn is_dense(axes: &[Axis], operand: usize) -> bool {
    let mut expected = 1;
    axes.iter().rev().all(|axis| {
        let is_next = axis.strides[operand] == expected || axis.extent == 1;
        expected *= axis.extent;
        is_next
    })
}

/// Returns true if all points read the same element of an operand.
pub(crate) fn is_constant(axes: &[Axis], operand: usize) -> bool {
    axes.iter().all(|it| it.strides[operand] == 0)
}

/// Returns the type that can number the points and the elements of all operands, with some to
/// spare.
pub(crate) fn index_type(axes: &[Axis]) -> &'static str {
    let n_operands = axes.first().map_or(0, |it| it.strides.len());
    let steps = |operand: usize| {
        axes.iter().map(move |it| it.extent.saturating_sub(1) * it.strides[operand]).sum()
    };
    let largest = (0..n_operands).map(steps).fold(n_points(axes), usize::max);
    index_type_below(largest)
}

/// Returns the type that can hold numbers up to this one, with some to spare.
pub(crate) const fn index_type_below(largest: usize) -> &'static str {
    if largest < 1 << 31 { "unsigned" } else { "unsigned long long" }
}

/// Writes the coordinates of the point with a number, as constants `{name}0`, `{name}1` and so on,
/// and returns the offset of that point in each operand.
pub(crate) fn write_places(
    text: &mut Text,
    index_type: &str,
    (name, index): (&str, &str),
    axes: &[Axis],
) -> Vec<String> {
    if let [axis] = axes {
        // The only coordinate is the number itself.
        return axis.strides.iter().map(|stride| product(index, *stride)).collect();
    }
    let mut rest = index.to_owned();
    for (dim, axis) in axes.iter().enumerate().rev() {
        let extent = axis.extent;
        let coordinate = if dim == 0 { rest.clone() } else { format!("{rest} % {extent}u") };
        text.line(format!("const {index_type} {name}{dim} = {coordinate};"));
        if dim > 0 {
            let next = format!("{name}{dim}_rest");
            text.line(format!("const {index_type} {next} = {rest} / {extent}u;"));
            rest = next;
        }
    }
    let n_operands = axes.first().map_or(0, |it| it.strides.len());
    let place = |operand| {
        let steps = axes.iter().enumerate().filter(|it| it.1.strides[operand] != 0);
        let terms =
            steps.map(|(dim, axis)| product(&format!("{name}{dim}"), axis.strides[operand]));
        sum(terms)
    };
    (0..n_operands).map(place).collect()
}

/// Returns a sum as text.
pub(crate) fn sum(terms: impl IntoIterator<Item = String>) -> String {
    let terms: Vec<String> = terms.into_iter().filter(|it| it != "0u").collect();
    match terms.as_slice() {
        [] => "0u".to_owned(),
        [one] => one.clone(),
        more => format!("({})", more.join(" + ")),
    }
}

/// Returns a product with a constant as text.
pub(crate) fn product(factor: &str, constant: usize) -> String {
    match constant {
        0 => "0u".to_owned(),
        1 => factor.to_owned(),
        _ => format!("{factor} * {constant}u"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(extents: &[usize], operands: &[&[usize]], expected: &[(usize, &[usize])]) {
        let operands: Vec<Strides> = operands.iter().map(|it| Strides::new(it)).collect();
        let found = axes(extents, &operands);
        let found: Vec<_> = found.iter().map(|it| (it.extent, it.strides.as_slice())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn neighbors_join_where_all_operands_allow_it() {
        check(&[2, 3, 4], &[&[12, 4, 1]], &[(24, &[1])]);
        check(&[2, 3, 4], &[&[12, 4, 1], &[0, 0, 1]], &[(6, &[4, 0]), (4, &[1, 1])]);
        check(&[2, 1, 4], &[&[4, 7, 1]], &[(8, &[1])]);
        check(&[2, 3], &[&[1, 2]], &[(2, &[1]), (3, &[2])]);
        check(&[], &[&[], &[]], &[(1, &[0, 0])]);
    }

    #[test]
    fn places_are_sums_of_coordinates_times_strides() {
        let mut text = Text::default();
        let axes = axes(&[5, 7], &[Strides::new(&[0, 1]), Strides::new(&[2, 10])]);
        let places = write_places(&mut text, "unsigned", ("c", "i"), &axes);
        assert_eq!(places, ["c1", "(c0 * 2u + c1 * 10u)"]);
        let expected = "const unsigned c1 = i % 7u;\nconst unsigned c1_rest = i / 7u;\nconst unsigned c0 = c1_rest;\n";
        assert_eq!(text.finish(), expected);
    }
}
