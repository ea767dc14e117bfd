//! Checks of a model's tables before its ranks are started.

use soybean_plan::{BUFFER_ALIGNMENT, Buffer, Entry, Output, Rows, Tables};

use crate::{Error, ErrorKind};

/// Checks that all buffers are within the arena, that the buffers of inputs, parameters, states and
/// outputs are as long as a rank's parts, and that entries refer to tensors that exist.
pub(crate) fn check_tables(tables: &Tables) -> Result<(), Error> {
    let error = |message: String| Err(Error::new(ErrorKind::Program, message));
    check_entries(tables)?;
    for (number, buffer) in tables.buffers.iter().enumerate() {
        if !is_within(tables.arena_bytes, buffer) {
            let (n_bytes, found) = (tables.arena_bytes, buffer);
            return error(format!(
                "buffer {number}: expected a place within {n_bytes} bytes at a multiple of {BUFFER_ALIGNMENT}, found {found:?}"
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

/// Checks that there is an entry, and that the tensors of each exist.
fn check_entries(tables: &Tables) -> Result<(), Error> {
    let error = |message: String| Err(Error::new(ErrorKind::Program, message));
    if tables.entries.is_empty() {
        return error("expected a program with an entry, found none".to_owned());
    }
    for Entry { name, inputs, outputs, .. } in tables.entries.iter() {
        let lists =
            [("inputs", inputs, tables.inputs.len()), ("outputs", outputs, tables.outputs.len())];
        let wrong =
            lists.into_iter().find(|(_, range, n)| range.start > range.end || range.end > *n);
        if let Some((what, range, n)) = wrong {
            return error(format!(
                "entry `{name}`: expected {what} among {n} tensors, found those of numbers {range:?}"
            ));
        }
    }
    Ok(())
}

/// Returns true if the buffer is aligned and within an arena of this size.
fn is_within(arena_bytes: usize, buffer: &Buffer) -> bool {
    let end = buffer
        .n_elements
        .checked_mul(buffer.dtype.bytes())
        .and_then(|n_bytes| n_bytes.checked_add(buffer.offset));
    buffer.offset.is_multiple_of(BUFFER_ALIGNMENT) && end.is_some_and(|end| end <= arena_bytes)
}
