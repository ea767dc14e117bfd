//! Declarations of functions in the opened libraries, and of their statuses.
//!
//! cudarc binds them, too. It opens libraries by name, so it may open other files, and its statuses
//! are enums, so one that a newer library adds would be undefined behavior.

/// Declares functions of a library that return a status, with the names and types of its header.
///
/// `functions! { cudnn -> Status; fn cudnnCreate(handle: *mut cudnnHandle_t); }` declares one of
/// the library that `Installation::cudnn` returns.
macro_rules! functions {
    (
        $library:ident -> $status:ty;
        $(fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*
    ) => {
        /// Names of the functions, which the library has when it is opened.
        pub(in crate::cuda) const FUNCTIONS: &[&str] = &[$(stringify!($name)),*];

        $(
            /// Calls the library's function of this name.
            ///
            /// # Safety
            /// As the library's documentation says.
            ///
            /// # Panics
            /// If the library is missing.
            pub(super) unsafe fn $name($($argument: $type),*) -> $status {
                type Function = unsafe extern "C" fn($($type),*) -> $status;
                static FUNCTION: std::sync::OnceLock<Function> = std::sync::OnceLock::new();
                let function = FUNCTION.get_or_init(|| {
                    let library = $crate::cuda::libraries::installation().$library();
                    let library = library.expect("callers ask for the library first");
                    // SAFETY: the type is that of the library's header.
                    let found = unsafe { library.function(stringify!($name)) };
                    found.expect("it was found when the library was opened")
                });
                // SAFETY: required of the caller.
                unsafe { function($($argument),*) }
            }
        )*
    };
}
pub(in crate::cuda) use functions;

/// Declares `Status`, an integer that functions of a library return, and the error of a call that
/// failed. `Installation` has the library under the first name, and the library has a function with
/// the second name that returns a static text for any status.
macro_rules! statuses {
    ($library:ident, $text:literal, $integer:ty, $error:ident) => {
        /// The status of a call, 0 for success.
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(in crate::cuda) struct Status(pub(in crate::cuda) $integer);

        impl Status {
            /// Returns an error unless the call succeeded.
            pub(in crate::cuda) const fn result(self) -> Result<(), $error> {
                match self {
                    Self(0) => Ok(()),
                    failed => Err($error(failed)),
                }
            }
        }

        /// The status of a call that failed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(in crate::cuda) struct $error(pub(in crate::cuda) Status);

        impl std::fmt::Display for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let library = $crate::cuda::libraries::installation().$library();
                // SAFETY: it takes any status, and its texts are static.
                let text = unsafe { $crate::cuda::libraries::status_text(library, $text, self.0) };
                write!(f, "{text} ({})", self.0.0)
            }
        }
    };
}
pub(in crate::cuda) use statuses;
