//! Checks of a model's tables before its ranks are started.

use soybean_plan::{Buffer, Output, Rows, Tables};

use crate::{Error, ErrorKind};

/// The alignment of all buffers, in bytes.
pub(crate) const ALIGNMENT: usize = 64;

/// Checks that all buffers are within the arena, and that the buffers of inputs, parameters, states
/// and outputs are as long as a rank's parts.
pub(crate) fn check_tables(tables: &Tables) -> Result<(), Error> {
    let error = |message: String| Err(Error::new(ErrorKind::Program, message));
    for (number, buffer) in tables.buffers.iter().enumerate() {
        if !is_within(tables.arena_bytes, buffer) {
            let (n_bytes, found) = (tables.arena_bytes, buffer);
            return error(format!(
                "buffer {number}: expected a place within {n_bytes} bytes at a multiple of 64, found {found:?}"
            ));
        }
    }
    let inputs = tables.inputs.iter().map(|it| (&it.name, &it.tile, it.buffer));
    let parameters = tables.parameters.iter().map(|it| (&it.name, &it.tile, it.buffer));
    let outputs = tables.outputs.iter().map(|it| (&it.name, &it.tile, it.buffer));
    let states = tables.states.iter().map(|it| (&it.name, &it.tile, it.buffer));
    for (name, tile, buffer) in inputs.chain(parameters).chain(states).chain(outputs) {
        let expected = tile.local_shape(&tables.mesh).n_elements();
        let found = tables.buffers.get(buffer).map(|it| it.n_elements);
        if found != Some(expected) || !tile.is_legal(&tables.mesh) {
            return error(format!(
                "`{name}`: expected a buffer of {expected} elements, found {found:?}"
            ));
        }
    }
    let has_rows = |it: &&Output| match it.rows {
        Rows::Own { dim } => dim < it.tile.shape.len(),
        Rows::Fixed | Rows::Mixed => true,
    };
    match tables.outputs.iter().find(|it| !has_rows(it)) {
        Some(Output { name, tile, rows, .. }) => error(format!(
            "output `{name}`: expected rows in a dim of {}, found {rows:?}",
            tile.shape
        )),
        None => Ok(()),
    }
}

/// Returns true if the buffer is aligned and within an arena of this size.
fn is_within(arena_bytes: usize, buffer: &Buffer) -> bool {
    let end = buffer
        .n_elements
        .checked_mul(buffer.dtype.bytes())
        .and_then(|n_bytes| n_bytes.checked_add(buffer.offset));
    buffer.offset.is_multiple_of(ALIGNMENT) && end.is_some_and(|end| end <= arena_bytes)
}
