//! Parameters that the caller gives by name.

use std::collections::{BTreeMap, BTreeSet};

use soybean_plan::Tables;

use crate::{Array, Error, ErrorKind, View};

/// Returns the parameters in the order of the tables.
pub(super) fn sorted_parameters<'a>(
    tables: &Tables,
    given: &'a [(String, Array)],
) -> Result<Vec<View<'a>>, Error> {
    let error = |message: String| Err(Error::new(ErrorKind::Parameters, message));
    let names = || tables.parameters.iter().map(|it| it.name.as_ref());
    let (known, mut arrays) = (names().collect::<BTreeSet<&str>>(), BTreeMap::new());
    for (name, array) in given {
        if arrays.insert(name.as_str(), array).is_some() {
            return error(format!("parameter `{name}`: expected once, found twice"));
        }
        if !known.contains(name.as_str()) {
            let known = names().collect::<Vec<_>>().join(", ");
            return error(format!("expected parameters {known}, found `{name}`"));
        }
    }
    let mut views = Vec::new();
    for parameter in tables.parameters.iter() {
        let (name, shape) = (&parameter.name, parameter.tile.shape);
        let Some(array) = arrays.get(name.as_ref()) else {
            return error(format!("parameter `{name}`: expected shape {shape}, found none"));
        };
        let n_elements = array.data.len();
        if array.shape != shape[..] || n_elements != shape.n_elements() {
            let found = &array.shape;
            return error(format!(
                "parameter `{name}`: expected shape {shape}, found {found:?} with {n_elements} elements"
            ));
        }
        views.push(View::F32(&array.data));
    }
    Ok(views)
}
