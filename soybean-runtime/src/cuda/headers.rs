//! Checks of the numbers and types of our bindings against NVIDIA's headers.
//!
//! A C++ compiler checks static asserts, whose values this program prints. The headers are those of
//! `scripts/cuda-headers.sh`, in the folder that `SOYBEAN_CUDA_HEADERS` names.

use std::{env, fmt, fs, path::PathBuf, process::Command};

/// Static asserts about a header.
pub(super) struct Asserts(String);

impl Asserts {
    /// Starts the asserts about a header.
    pub(super) fn about(header: &str) -> Self {
        Self(format!("#include <cstddef>\n#include <{header}>\n"))
    }

    /// Asserts that an expression of C++ has this value.
    pub(super) fn equal(&mut self, expression: &str, value: impl fmt::Display) {
        let assert = format!("static_assert((long long)({expression}) == {value});\n");
        self.0.push_str(&assert);
    }

    /// Checks the asserts, if there are headers.
    #[expect(clippy::print_stderr, reason = "a skipped test should be visible in the output")]
    pub(super) fn check(self, name: &str) {
        let Some(folder) = env::var_os("SOYBEAN_CUDA_HEADERS").map(PathBuf::from) else {
            return eprintln!("skipped: SOYBEAN_CUDA_HEADERS names no folder with headers");
        };
        let file = env::temp_dir().join(format!("soybean-{name}-{}.cpp", std::process::id()));
        fs::write(&file, self.0).unwrap();
        let mut compiler = Command::new(env::var_os("CXX").unwrap_or_else(|| "g++".into()));
        compiler.args(["-std=c++17", "-fsyntax-only"]).arg(&file);
        for package in ["cu13/include", "cu13/include/cccl", "nccl/include", "cudnn/include"] {
            compiler.arg("-isystem").arg(folder.join("nvidia").join(package));
        }
        let output = compiler.output().unwrap();
        fs::remove_file(&file).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Asserts that variants of enums have the numbers of the header, which has the same names.
macro_rules! same_numbers {
    ($asserts:expr, $($path:path: $($name:ident)*;)*) => {
        $({
            use $path as Number;
            $($asserts.equal(stringify!($name), Number::$name as u32);)*
        })*
    };
}
pub(super) use same_numbers;

/// Asserts that a struct has the size and the fields of the header's, which have the same names.
macro_rules! same_fields {
    ($asserts:expr, $type:ty, $name:literal: $($field:ident)*) => {
        $asserts.equal(concat!("sizeof(", $name, ")"), size_of::<$type>());
        $(
            let offset = concat!("offsetof(", $name, ", ", stringify!($field), ")");
            $asserts.equal(offset, std::mem::offset_of!($type, $field));
        )*
    };
}
pub(super) use same_fields;
