//! Where libraries of CUDA may lie besides the folders that the system's loader knows.
//!
//! Python's packages bring all of CUDA's libraries along, each in a folder below `site-packages/nvidia`, which no loader looks into.

use std::{
    collections::BTreeSet,
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
};

/// The variables of the environment that say where to look.
#[derive(Default)]
pub(super) struct SearchEnvironment {
    /// `SOYBEAN_CUDA_LIBS`, folders separated as in `PATH`.
    pub(super) explicit: Option<OsString>,
    /// `VIRTUAL_ENV` and `CONDA_PREFIX`.
    pub(super) prefixes: Vec<OsString>,
    /// `PATH`, in which the Python that is in use stands.
    pub(super) path: Option<OsString>,
    /// `HOME`, where packages may be installed for one user.
    pub(super) home: Option<OsString>,
}

/// SearchFolders with libraries, those to be asked first at the front.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SearchFolders {
    /// Those that the user names: they go before what the loader finds.
    pub(super) explicit: Vec<PathBuf>,
    /// All others: they come after it.
    pub(super) standard: Vec<PathBuf>,
}

impl SearchEnvironment {
    /// What the environment of this process says.
    pub(super) fn from_process() -> Self {
        Self {
            explicit: env::var_os("SOYBEAN_CUDA_LIBS"),
            prefixes: ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(env::var_os).collect(),
            path: env::var_os("PATH"),
            home: env::var_os("HOME"),
        }
    }

    /// The folders that exist.
    pub(super) fn folders(&self) -> SearchFolders {
        let explicit = self.explicit.iter().flat_map(env::split_paths);
        let explicit = explicit.flat_map(|it| [vec![it.clone()], of_wheels(&it)].concat());
        let toolkit = ["/usr/local/cuda/lib64", "/usr/local/cuda/lib"].map(PathBuf::from);
        let prefixes = self.prefixes();
        let standard = toolkit.into_iter().chain(prefixes.iter().flat_map(|it| of_prefix(it)));
        SearchFolders { explicit: existing(explicit), standard: existing(standard) }
    }

    /// The folders below which Pythons have their packages.
    fn prefixes(&self) -> Vec<PathBuf> {
        let mut prefixes: Vec<PathBuf> = self.prefixes.iter().map(PathBuf::from).collect();
        let programs = self.path.iter().flat_map(env::split_paths).map(|it| it.join("python3"));
        if let Some(program) = programs.into_iter().find(|it| it.is_file()) {
            // In a virtual environment the program is a link: the environment goes before the installation behind it.
            let real = fs::canonicalize(&program).ok();
            let of_program = |it: &Path| Some(it.parent()?.parent()?.to_path_buf());
            prefixes.extend([Some(program), real].iter().flatten().filter_map(|it| of_program(it)));
        }
        prefixes.extend(self.home.iter().map(|it| Path::new(it).join(".local")));
        prefixes
    }
}

/// The folders with libraries below a prefix: its own, as conda has it, and those of Python's packages.
fn of_prefix(prefix: &Path) -> Vec<PathBuf> {
    // Debian's Python calls its folders differently and has more of them.
    let roots = [prefix.join("lib"), prefix.join("local/lib")];
    let pythons = roots.iter().flat_map(|it| inside(it)).filter(|it| is_python(it));
    let packages = pythons.flat_map(|it| [it.join("site-packages"), it.join("dist-packages")]);
    let packages = existing(packages);
    [vec![prefix.join("lib")], packages.iter().flat_map(|it| of_wheels(it)).collect()].concat()
}

/// The folders with libraries in a folder of packages.
fn of_wheels(packages: &Path) -> Vec<PathBuf> {
    inside(&packages.join("nvidia")).into_iter().map(|it| it.join("lib")).collect()
}

fn is_python(folder: &Path) -> bool {
    folder.file_name().is_some_and(|it| it.to_string_lossy().starts_with("python3"))
}

/// What a folder holds, later versions first; nothing if there is no such folder.
fn inside(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|it| it.path()).collect();
    paths.sort_by(|one, other| other.cmp(one));
    paths
}

/// Those that are folders, each once.
fn existing<I: IntoIterator<Item = PathBuf>>(paths: I) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    paths.into_iter().filter(|it| it.is_dir() && seen.insert(it.clone())).collect()
}

/// The first file of a folder whose name begins so, later versions first.
pub(super) fn file_beginning_with(folder: &Path, start: &str) -> Option<PathBuf> {
    let begins = |name: &OsStr| name.to_string_lossy().starts_with(start);
    inside(folder).into_iter().find(|it| it.file_name().is_some_and(begins))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these folders in it, which goes when this does.
    struct Tree(PathBuf);

    impl Tree {
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

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn standard(surroundings: &SearchEnvironment, below: &Tree) -> Vec<PathBuf> {
        let mut folders = surroundings.folders().standard;
        folders.retain(|it| it.starts_with(&below.0));
        folders
    }

    #[test]
    fn chosen_folders_may_hold_libraries_or_packages() {
        let tree = Tree::new("explicit", &["libs", "packages/nvidia/cu13/lib"]);
        let explicit = env::join_paths([tree.at("libs"), tree.at("packages"), tree.at("none")]);
        let surroundings =
            SearchEnvironment { explicit: explicit.ok(), ..SearchEnvironment::default() };
        let expected = [tree.at("libs"), tree.at("packages"), tree.at("packages/nvidia/cu13/lib")];
        assert_eq!(surroundings.folders().explicit, expected);
    }

    #[test]
    fn both_layouts_of_wheels_are_found_in_environments() {
        let packages = "lib/python3.11/site-packages/nvidia";
        let tree = Tree::new(
            "wheels",
            &[&format!("{packages}/cu13/lib"), &format!("{packages}/cudnn/lib")],
        );
        let prefixes = vec![tree.0.clone().into_os_string()];
        let surroundings = SearchEnvironment { prefixes, ..SearchEnvironment::default() };
        let expected = ["lib", &format!("{packages}/cudnn/lib"), &format!("{packages}/cu13/lib")];
        assert_eq!(standard(&surroundings, &tree), expected.map(|it| tree.at(it)));
    }

    #[test]
    fn the_python_on_the_path_leads_to_its_packages_and_to_those_behind_it() {
        let (environment, real) = (
            "venv/lib/python3.11/site-packages/nvidia/nccl/lib",
            "usr/lib/python3/dist-packages/nvidia/cublas/lib",
        );
        let tree = Tree::new("python", &[environment, real, "venv/bin", "usr/bin"]);
        fs::write(tree.at("usr/bin/python3.11"), "").unwrap();
        std::os::unix::fs::symlink(tree.at("usr/bin/python3.11"), tree.at("venv/bin/python3"))
            .unwrap();
        let path = env::join_paths([tree.at("empty"), tree.at("venv/bin")]).ok();
        let surroundings = SearchEnvironment { path, ..SearchEnvironment::default() };
        let expected = ["venv/lib", environment, "usr/lib", real].map(|it| tree.at(it));
        assert_eq!(standard(&surroundings, &tree), expected);
    }

    #[test]
    fn files_are_found_by_the_start_of_their_names() {
        let tree = Tree::new("files", &["lib"]);
        for name in ["libnvrtc-builtins.so.13.0", "libnvrtc-builtins.so.12.9", "libnvrtc.so.13"] {
            fs::write(tree.at("lib").join(name), "").unwrap();
        }
        let found = |start: &str| file_beginning_with(&tree.at("lib"), start);
        let builtins = Some(tree.at("lib/libnvrtc-builtins.so.13.0"));
        assert_eq!(found("libnvrtc-builtins.so."), builtins);
        assert_eq!(found("libnvrtc-builtins.so.11."), None);
    }
}
