//! Tests of patterns against the runs that they encode.

use super::*;

/// Returns all pairs of offsets of a pattern in units, as the functions compute them.
fn places(pattern: &Pattern) -> Vec<[u64; 2]> {
    let place = |point: u64| {
        let (mut rest, mut place) = (point, [pattern.here, pattern.there]);
        for dim in pattern.dims.iter().rev() {
            let coordinate = rest % u64::from(dim.extent);
            rest /= u64::from(dim.extent);
            let step = if dim.table == NO_TABLE {
                [dim.here, dim.there].map(|it| u64::from(it) * coordinate)
            } else {
                pattern.tables[usize::try_from(u64::from(dim.table) + coordinate).unwrap()]
                    .map(u64::from)
            };
            place[0] += step[0];
            place[1] += step[1];
        }
        place
    };
    (0..pattern.n_points).map(place).collect()
}

/// Returns all pairs of offsets of elements, by plain loops.
fn elements(dims: &[Dim]) -> Vec<[u64; 2]> {
    let mut all = vec![[0, 0]];
    for dim in dims {
        let positions = dim.runs.iter().flat_map(|run| {
            (0..run.length).map(|it| {
                [(run.here + it) * dim.stride_here, (run.there + it) * dim.stride_there]
                    .map(|it| it as u64)
            })
        });
        let positions: Vec<_> = positions.collect();
        let inner = |at: &[u64; 2]| {
            let at = *at;
            positions.iter().map(move |it| [at[0] + it[0], at[1] + it[1]]).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(inner).collect();
    }
    all
}

/// Returns the unit in bytes, the number of dims and of pairs in tables, for elements of 4 bytes.
fn check(dims: &[Dim]) -> [usize; 3] {
    let unit_bytes = unit_bytes(dims, 4);
    let pattern = Pattern::new(dims, 4, unit_bytes).unwrap();
    let unit = unit_bytes as u64 / 4;
    let spread = |at: [u64; 2]| (0..unit).map(move |it| at.map(|place| place * unit + it));
    let found: Vec<_> = places(&pattern).into_iter().flat_map(spread).collect();
    assert_eq!(found, elements(dims));
    [unit_bytes, pattern.dims.len(), pattern.tables.len()]
}

fn dim(runs: &[[usize; 3]], stride_here: usize, stride_there: usize) -> Dim {
    let run = |it: &[usize; 3]| Run { here: it[0], there: it[1], length: it[2] };
    Dim { runs: runs.iter().map(run).collect(), stride_here, stride_there }
}

#[test]
fn patterns_are_steps_where_they_are_even_and_tables_elsewhere() {
    assert_eq!(check(&[]), [4, 1, 0]);
    assert_eq!(check(&[dim(&[[0, 0, 64]], 1, 1)]), [16, 1, 0]);
    assert_eq!(check(&[dim(&[[0, 3, 64]], 1, 1)]), [4, 1, 0]);
    assert_eq!(check(&[dim(&[[1, 2, 3]], 8, 24), dim(&[[0, 8, 8]], 1, 1)]), [16, 2, 0]);
    // Evenly spaced runs become two dims, of which the inner one is merged with the next.
    assert_eq!(check(&[dim(&[[0, 0, 2], [2, 4, 2]], 8, 8), dim(&[[0, 0, 8]], 1, 1)]), [16, 2, 0]);
    assert_eq!(check(&[dim(&[[0, 0, 2], [2, 5, 4]], 6, 6), dim(&[[2, 0, 2]], 1, 1)]), [8, 1, 6]);
    assert_eq!(check(&[dim(&[[0, 0, 1]], 8, 24), dim(&[], 1, 1)]), [16, 1, 0]);
}

#[test]
fn words_stand_where_the_functions_look_for_them() {
    let dims = [dim(&[[1, 0, 3]], 10, 20), dim(&[[0, 1, 2], [2, 4, 1]], 1, 1)];
    let pattern = Pattern::new(&dims, 4, 4).unwrap();
    let words = pattern.part(0x1234, 7, 0x5678);
    assert_eq!(words[..6], [0x1234, 0x5678, 10, 0, 9, 2 | 7 << 32]);
    assert_eq!(words[6..10], [3 | 0xffff_ffff << 32, 10 | 20 << 32, 3, 0]);
    assert_eq!(pattern.tables, [[0, 1], [1, 2], [2, 4]]);
}

#[test]
fn grids_have_a_row_of_blocks_for_each_part() {
    assert_eq!(grid(1, 3), Some([1, 3, 1]));
    assert_eq!(grid(1 << 30, 1), Some([1024, 1, 1]));
    assert_eq!(grid(0, 3), None);
}
