//! Arguments of C functions, as types whose methods are safe: the caller of a C function vouches for its pointers, and null is always looked for.

#![expect(unsafe_code, reason = "C hands over pointers")]

use std::ffi::{CStr, c_char, c_void};

/// Something that a library made, by its number.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Handle(pub(crate) u64);

/// The address of something that is only looked at as bytes.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Address(*mut c_void);

/// Where a result goes.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

/// Where values come from.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct In<T>(*const T);

impl Address {
    pub(crate) fn number(self) -> u64 {
        self.0 as u64
    }

    /// The bytes there.
    pub(crate) fn read(self, n_bytes: usize) -> Option<Vec<u8>> {
        In(self.0.cast_const().cast::<u8>()).list(n_bytes)
    }

    /// Puts bytes there.
    pub(crate) fn write(self, bytes: &[u8]) -> Option<()> {
        Out(self.0.cast::<u8>()).put_list(bytes)
    }

    /// The value there; for attributes, whose type follows from another argument.
    pub(crate) fn value<T: Copy>(self) -> Option<T> {
        In(self.0.cast_const().cast::<T>()).get()
    }
}

impl<T> Out<T> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Puts the result there; none if there is nowhere.
    pub(crate) fn put(self, value: T) -> Option<()> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the caller of the C function gives the address of a `T`.
        unsafe { self.0.write_unaligned(value) };
        Some(())
    }
}

impl<T: Copy> Out<T> {
    /// What is there before the result, for the few arguments that are both.
    pub(crate) fn get(self) -> Option<T> {
        In(self.0.cast_const()).get()
    }

    /// Puts values there, one after another.
    pub(crate) fn put_list(self, values: &[T]) -> Option<()> {
        if self.0.is_null() {
            return values.is_empty().then_some(());
        }
        // SAFETY: the caller of the C function gives the address of so many, which are not those of this library.
        unsafe { self.0.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        Some(())
    }
}

impl<T: Copy> In<T> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The value there.
    pub(crate) fn get(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the caller of the C function gives the address of a `T`.
        Some(unsafe { self.0.read_unaligned() })
    }

    /// So many values.
    pub(crate) fn list(self, count: usize) -> Option<Vec<T>> {
        if self.0.is_null() {
            return (count == 0).then(Vec::new);
        }
        let value = |number| {
            // SAFETY: the caller of the C function gives the address of so many values.
            let at = unsafe { self.0.add(number) };
            // SAFETY: as above.
            unsafe { at.read_unaligned() }
        };
        Some((0..count).map(value).collect())
    }
}

impl In<c_char> {
    /// The text there, up to its zero.
    pub(crate) fn text(self) -> Option<String> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the caller of the C function gives a text with a zero at its end.
        Some(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }

    /// Whether the bytes there begin with these.
    pub(crate) fn starts_with(self, bytes: &[u8]) -> bool {
        // One at a time, so that a shorter text is not read beyond its end.
        !self.0.is_null()
            && bytes.iter().enumerate().all(|(number, &expected)| {
                // SAFETY: all bytes before this one are as expected, so that what the caller gave goes on.
                let at = unsafe { self.0.add(number) };
                // SAFETY: as above.
                unsafe { at.read() }.cast_unsigned() == expected
            })
    }
}

/// A text that lives as long as the program, for functions that submit one.
pub(crate) fn constant(text: &'static CStr) -> Address {
    Address(text.as_ptr().cast_mut().cast())
}

/// Copies bytes from the host's own memory, which CUDA does not know.
pub(crate) fn host_bytes(address: u64, n_bytes: usize) -> Option<Vec<u8>> {
    Address(address as *mut c_void).read(n_bytes)
}

/// Copies bytes into the host's own memory.
pub(crate) fn put_host_bytes(address: u64, bytes: &[u8]) -> Option<()> {
    Address(address as *mut c_void).write(bytes)
}
