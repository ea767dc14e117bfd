//! Search for CUDA libraries outside the folders of the system's loader.
//!
//! Python packages contain all CUDA libraries, each in a folder below `site-packages/nvidia`, where
//! no loader looks.

use std::{
    collections::BTreeSet,
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
};

/// Environment variables that determine the search.
#[derive(Default)]
pub(super) struct SearchEnvironment {
    /// `SOYBEAN_CUDA_LIBS`: folders separated as in `PATH`.
    pub(super) explicit: Option<OsString>,
    /// `VIRTUAL_ENV` and `CONDA_PREFIX`.
    pub(super) prefixes: Vec<OsString>,
    /// `PATH`, which contains the active Python.
    pub(super) path: Option<OsString>,
    /// `HOME`, below which packages may be installed for one user.
    pub(super) home: Option<OsString>,
}

/// Library folders in the order of the search.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SearchFolders {
    /// Folders that the user names. They are searched before those of the loader.
    pub(super) explicit: Vec<PathBuf>,
    /// All other folders. They are searched after those of the loader.
    pub(super) standard: Vec<PathBuf>,
}

impl SearchEnvironment {
    /// Reads the environment of this process.
    pub(super) fn from_process() -> Self {
        Self {
            explicit: env::var_os("SOYBEAN_CUDA_LIBS"),
            prefixes: ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(env::var_os).collect(),
            path: env::var_os("PATH"),
            home: env::var_os("HOME"),
        }
    }

    /// Returns the folders that exist.
    pub(super) fn folders(&self) -> SearchFolders {
        let explicit = self.explicit.iter().flat_map(env::split_paths);
        let explicit = explicit.flat_map(|it| [vec![it.clone()], wheel_folders(&it)].concat());
        let toolkit = ["/usr/local/cuda/lib64", "/usr/local/cuda/lib"].map(PathBuf::from);
        let prefixes = self.prefixes();
        let standard =
            toolkit.into_iter().chain(prefixes.iter().flat_map(|it| library_folders(it)));
        SearchFolders { explicit: existing_folders(explicit), standard: existing_folders(standard) }
    }

    /// Returns the prefixes of Python installations.
    fn prefixes(&self) -> Vec<PathBuf> {
        let mut prefixes: Vec<PathBuf> = self.prefixes.iter().map(PathBuf::from).collect();
        let programs = self.path.iter().flat_map(env::split_paths).map(|it| it.join("python3"));
        if let Some(program) = programs.into_iter().find(|it| it.is_file()) {
            // In a virtual environment the program is a symbolic link. The environment comes before
            // the installation that it links to.
            let real = fs::canonicalize(&program).ok();
            let of_program = |it: &Path| Some(it.parent()?.parent()?.to_path_buf());
            prefixes.extend([Some(program), real].iter().flatten().filter_map(|it| of_program(it)));
        }
        prefixes.extend(self.home.iter().map(|it| Path::new(it).join(".local")));
        prefixes
    }
}

/// Returns the library folders below a prefix: its own, as conda has it, and those of Python
/// packages.
fn library_folders(prefix: &Path) -> Vec<PathBuf> {
    // Debian's Python has more folders, with other names.
    let roots = [prefix.join("lib"), prefix.join("local/lib")];
    let pythons = roots.iter().flat_map(|it| entries(it)).filter(|it| is_python(it));
    let packages = pythons.flat_map(|it| [it.join("site-packages"), it.join("dist-packages")]);
    let packages = existing_folders(packages);
    [vec![prefix.join("lib")], packages.iter().flat_map(|it| wheel_folders(it)).collect()].concat()
}

/// Returns the library folders in a folder of Python packages.
fn wheel_folders(packages: &Path) -> Vec<PathBuf> {
    entries(&packages.join("nvidia")).into_iter().map(|it| it.join("lib")).collect()
}

fn is_python(folder: &Path) -> bool {
    folder.file_name().is_some_and(|it| it.to_string_lossy().starts_with("python3"))
}

/// Returns the entries of a folder, later versions first. Empty if the folder does not exist.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|it| it.path()).collect();
    paths.sort_by(|one, other| other.cmp(one));
    paths
}

/// Returns the existing_folders folders without duplicates.
fn existing_folders<I: IntoIterator<Item = PathBuf>>(paths: I) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    paths.into_iter().filter(|it| it.is_dir() && seen.insert(it.clone())).collect()
}

/// Returns the first file of a folder whose name has this prefix, later versions first.
pub(super) fn file_with_prefix(folder: &Path, start: &str) -> Option<PathBuf> {
    let begins = |name: &OsStr| name.to_string_lossy().starts_with(start);
    entries(folder).into_iter().find(|it| it.file_name().is_some_and(begins))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary folder with these subfolders, removed on drop.
    struct TempTree(PathBuf);

    impl TempTree {
        fn new(name: &str, folders: &[&str]) -> Self {
            let root = env::temp_dir().join(format!("soybean-{name}-{}", std::process::id()));
            for folder in folders {
                fs::create_dir_all(root.join(folder)).unwrap();
            }
            Self(fs::canonicalize(root).unwrap())
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.join(path)
        }
    }

    impl Drop for TempTree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn standard(surroundings: &SearchEnvironment, below: &TempTree) -> Vec<PathBuf> {
        let mut folders = surroundings.folders().standard;
        folders.retain(|it| it.starts_with(&below.0));
        folders
    }

    #[test]
    fn chosen_folders_may_hold_libraries_or_packages() {
        let tree = TempTree::new("explicit", &["libs", "packages/nvidia/cu13/lib"]);
        let explicit = env::join_paths([tree.at("libs"), tree.at("packages"), tree.at("none")]);
        let surroundings =
            SearchEnvironment { explicit: explicit.ok(), ..SearchEnvironment::default() };
        let expected = [tree.at("libs"), tree.at("packages"), tree.at("packages/nvidia/cu13/lib")];
        assert_eq!(surroundings.folders().explicit, expected);
    }

    #[test]
    fn both_layouts_of_wheels_are_found_in_environments() {
        let packages = "lib/python3.11/site-packages/nvidia";
        let tree = TempTree::new(
            "wheels",
            &[&format!("{packages}/cu13/lib"), &format!("{packages}/cudnn/lib")],
        );
        let prefixes = vec![tree.0.clone().into_os_string()];
        let surroundings = SearchEnvironment { prefixes, ..SearchEnvironment::default() };
        let expected = ["lib", &format!("{packages}/cudnn/lib"), &format!("{packages}/cu13/lib")];
        assert_eq!(standard(&surroundings, &tree), expected.map(|it| tree.at(it)));
    }

    #[test]
    fn the_python_on_the_path_and_its_base_installation_are_searched() {
        let (environment, real) = (
            "venv/lib/python3.11/site-packages/nvidia/nccl/lib",
            "usr/lib/python3/dist-packages/nvidia/cublas/lib",
        );
        let tree = TempTree::new("python", &[environment, real, "venv/bin", "usr/bin"]);
        fs::write(tree.at("usr/bin/python3.11"), "").unwrap();
        std::os::unix::fs::symlink(tree.at("usr/bin/python3.11"), tree.at("venv/bin/python3"))
            .unwrap();
        let path = env::join_paths([tree.at("empty"), tree.at("venv/bin")]).ok();
        let surroundings = SearchEnvironment { path, ..SearchEnvironment::default() };
        let expected = ["venv/lib", environment, "usr/lib", real].map(|it| tree.at(it));
        assert_eq!(standard(&surroundings, &tree), expected);
    }

    #[test]
    fn files_are_found_by_prefix() {
        let tree = TempTree::new("files", &["lib"]);
        for name in ["libnvrtc-builtins.so.13.0", "libnvrtc-builtins.so.12.9", "libnvrtc.so.13"] {
            fs::write(tree.at("lib").join(name), "").unwrap();
        }
        let found = |start: &str| file_with_prefix(&tree.at("lib"), start);
        let builtins = Some(tree.at("lib/libnvrtc-builtins.so.13.0"));
        assert_eq!(found("libnvrtc-builtins.so."), builtins);
        assert_eq!(found("libnvrtc-builtins.so.11."), None);
    }
}
