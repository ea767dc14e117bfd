//! Checkpoints read by Python.

use std::process::Command;

use soybean::{Array, checkpoint::Checkpoints};

use soybean_test_support::python_with;

use super::{
    environment::folder,
    network::{progress, train, trainer},
};

/// Prints the format that each file names, and the name, type, shape and bits of each tensor.
const SCRIPT: &str = "
import sys
from safetensors import safe_open
for path in sys.argv[1:]:
    with safe_open(path, framework='numpy') as file:
        print(file.metadata()['format'])
        for name in sorted(file.keys()):
            tensor = file.get_tensor(name)
            print(name, tensor.dtype, *tensor.shape, *tensor.reshape(-1).view('uint32'))
";

#[test]
fn python_reads_what_was_saved() {
    let Some(python) = python_with("numpy, safetensors.numpy") else {
        println!("skipped: no Python with the packages safetensors and numpy");
        return;
    };
    let mut trainer = trainer(4);
    train(&mut trainer, 2);
    let path = Checkpoints::new(folder("python"), 1).save(&mut trainer, &progress(0)).unwrap();
    let all = [trainer.parameters().unwrap(), trainer.optimizer_state().unwrap()];
    for (file, mut arrays) in ["model.safetensors", "optimizer.safetensors"].into_iter().zip(all) {
        let output =
            Command::new(&python).args(["-c", SCRIPT]).arg(path.join(file)).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        arrays.sort_by(|one, other| one.0.cmp(&other.0));
        let line = |(name, array): &(String, Array)| {
            let bits = array.data.iter().map(|it| it.to_bits().to_string());
            let numbers: Vec<String> =
                array.shape.iter().map(usize::to_string).chain(bits).collect();
            format!("{name} float32 {}\n", numbers.join(" "))
        };
        let expected: String = arrays.iter().map(line).collect();
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("pt\n{expected}"));
    }
}
