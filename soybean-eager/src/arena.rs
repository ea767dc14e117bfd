//! The storage of eager tensors: a stack of values on each thread, so that a tensor can be a `Copy`
//! handle.

use std::{cell::RefCell, rc::Rc};

/// A shape and its elements in row-major order.
#[derive(Debug)]
pub(super) struct Value {
    pub(super) shape: Vec<usize>,
    pub(super) data: Vec<f64>,
}

/// The slot of a tensor's value. The serial number distinguishes it from a later value in the same
/// slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle {
    slot: usize,
    serial: u64,
}

#[derive(Default)]
struct Arena {
    values: Vec<(u64, Rc<Value>)>,
    next_serial: u64,
}

thread_local! {
    static ARENA: RefCell<Arena> = RefCell::default();
}

pub(super) fn insert(value: Value) -> Handle {
    ARENA.with_borrow_mut(|arena| {
        let handle = Handle { slot: arena.values.len(), serial: arena.next_serial };
        arena.values.push((handle.serial, Rc::new(value)));
        arena.next_serial += 1;
        handle
    })
}

pub(super) fn get(handle: Handle) -> Rc<Value> {
    let found = ARENA.with_borrow(|arena| match arena.values.get(handle.slot) {
        Some((serial, value)) if *serial == handle.serial => Some(Rc::clone(value)),
        _ => None,
    });
    found.expect("the tensor was made in an eager scope that has ended")
}

/// Runs `compute` and frees the tensors that it created; results must be plain numbers.
pub fn scope<R>(compute: impl FnOnce() -> R) -> R {
    let _end = Truncate { n_values: ARENA.with_borrow(|arena| arena.values.len()) };
    compute()
}

/// Truncates the arena when dropped, so that a panic inside a scope also frees its tensors.
struct Truncate {
    n_values: usize,
}

impl Drop for Truncate {
    fn drop(&mut self) {
        ARENA.with_borrow_mut(|arena| arena.values.truncate(self.n_values));
    }
}
