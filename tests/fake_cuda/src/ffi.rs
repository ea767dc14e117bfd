//! Arguments of C functions as types with safe methods. The C caller guarantees that pointers are
//! valid. Null is always checked.

#![expect(unsafe_code, reason = "C hands over pointers")]

use std::ffi::{CStr, c_char, c_void};

/// Handle of a library object.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Handle(pub(crate) u64);

/// Address of memory that is accessed as bytes.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Address(*mut c_void);

/// Pointer to a result.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

/// Pointer to input values.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct In<T>(*const T);

impl Address {
    pub(crate) fn number(self) -> u64 {
        self.0 as u64
    }

    /// Reads bytes.
    pub(crate) fn read(self, n_bytes: usize) -> Option<Vec<u8>> {
        In(self.0.cast_const().cast::<u8>()).list(n_bytes)
    }

    /// Writes bytes.
    pub(crate) fn write(self, bytes: &[u8]) -> Option<()> {
        Out(self.0.cast::<u8>()).put_list(bytes)
    }

    /// Reads a value. The type of an attribute follows from another argument.
    pub(crate) fn value<T: Copy>(self) -> Option<T> {
        In(self.0.cast_const().cast::<T>()).get()
    }
}

impl<T> Out<T> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes the result. Returns `None` for a null pointer.
    pub(crate) fn put(self, value: T) -> Option<()> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the C caller passes a pointer to a `T`.
        unsafe { self.0.write_unaligned(value) };
        Some(())
    }
}

impl<T: Copy> Out<T> {
    /// Reads the value before it is overwritten, for in-out arguments.
    pub(crate) fn get(self) -> Option<T> {
        In(self.0.cast_const()).get()
    }

    /// Writes values contiguously.
    pub(crate) fn put_list(self, values: &[T]) -> Option<()> {
        if self.0.is_null() {
            return values.is_empty().then_some(());
        }
        // SAFETY: the C caller passes a pointer to that many values, which are not in this
        // library's memory.
        unsafe { self.0.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        Some(())
    }
}

impl<T: Copy> In<T> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Reads the value.
    pub(crate) fn get(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the C caller passes a pointer to a `T`.
        Some(unsafe { self.0.read_unaligned() })
    }

    /// Reads `count` values.
    pub(crate) fn list(self, count: usize) -> Option<Vec<T>> {
        if self.0.is_null() {
            return (count == 0).then(Vec::new);
        }
        let value = |number| {
            // SAFETY: the C caller passes a pointer to that many values.
            let at = unsafe { self.0.add(number) };
            // SAFETY: as above.
            unsafe { at.read_unaligned() }
        };
        Some((0..count).map(value).collect())
    }
}

impl In<c_char> {
    /// Reads a null-terminated string.
    pub(crate) fn text(self) -> Option<String> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the C caller passes a null-terminated string.
        Some(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }

    /// Returns true if the bytes begin with these.
    pub(crate) fn starts_with(self, bytes: &[u8]) -> bool {
        // Byte by byte, so that a shorter string is not read beyond its end.
        !self.0.is_null()
            && bytes.iter().enumerate().all(|(number, &expected)| {
                // SAFETY: all bytes before this one matched, so the string continues.
                let at = unsafe { self.0.add(number) };
                // SAFETY: as above.
                unsafe { at.read() }.cast_unsigned() == expected
            })
    }
}

/// Returns the address of a static string.
pub(crate) fn constant(text: &'static CStr) -> Address {
    Address(text.as_ptr().cast_mut().cast())
}

/// Reads pageable host memory.
pub(crate) fn host_bytes(address: u64, n_bytes: usize) -> Option<Vec<u8>> {
    Address(address as *mut c_void).read(n_bytes)
}

/// Writes pageable host memory.
pub(crate) fn put_host_bytes(address: u64, bytes: &[u8]) -> Option<()> {
    Address(address as *mut c_void).write(bytes)
}
