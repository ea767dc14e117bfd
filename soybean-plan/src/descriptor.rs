//! The macro that declares parts of a kernel's descriptor.

/// Declares a struct or an enum once, together with how it is written as a constant expression.
///
/// The variants of an enum have names in the text form. They need no fields.
macro_rules! descriptor {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident { $($(#[$note:meta])* pub $field:ident: $type:ty,)* }
    ) => {
        $(#[$attribute])*
        pub struct $name { $($(#[$note])* pub $field: $type,)* }

        $crate::const_expression::struct_expression!($name { $($field)* });
    };
    (
        $(#[$attribute:meta])*
        pub enum $name:ident { $($(#[$note:meta])* $variant:ident = $text:literal,)* }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$note])* $variant,)* }

        impl $name {
            /// All variants, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the name in the text form.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        $crate::const_expression::variant_expression!($name);
    };
}

pub(crate) use descriptor;
