//! `check` and `bench` of a predictor, on random inputs, since an inference model has no data.

use std::io::Write;

use soybean_runtime::{Predictor, data::Values};

use super::{
    CommandError, CommandModel,
    bench::{N_MEASURED, N_WARM_UP, Times, feeding, memory},
    check::{Report, suffix},
    flags::Options,
    random::random_inputs,
};
use crate::oracle::{Numbers, Oracle};

/// Compares the outputs and moved bytes of all entries with the model's functions and its plan.
/// States are zero before each prediction.
pub(super) fn check(
    model: &CommandModel,
    options: &Options,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let tables = model.model.tables();
    let mut report = Report::new(output, tables.precision);
    let seed = options.run.trainer.seed;
    let mut predictor = Predictor::new(model.model, options.run.trainer.clone())?;
    let weights = predictor.parameters()?;
    for entry in 0..tables.entries.len() {
        let of_entry = suffix(tables, entry);
        let batch = random_inputs(tables.inputs_of(entry), seed);
        let batch: Vec<_> = batch.iter().map(Values::view).collect();
        let weights: Vec<Numbers> =
            weights.iter().map(|(_, array)| Numbers::of_array(array)).collect();
        let expected = Oracle::new(model, (entry, &batch), &weights, seed).evaluation();
        predictor.reset_states()?;
        let found = predictor.predict(entry, &batch)?;
        let (predicted, counted) = (tables.entries[entry].bytes, predictor.moved_bytes());
        report.compare_bytes(&format!("bytes of a prediction{of_entry}"), predicted, counted)?;
        let (predicted, counted) = (tables.fed_bytes(entry), predictor.fed_bytes());
        report.compare_bytes(&format!("bytes of feeding a batch{of_entry}"), predicted, counted)?;
        let outputs = tables.predictions(entry).iter();
        for ((output, numbers), array) in outputs.zip(&expected).zip(&found) {
            let what = format!("output `{}`{of_entry}", output.name);
            report.compare(&what, &numbers.elements, &array.data)?;
        }
    }
    report.conclude()
}

/// Measures predictions, moved bytes and memory of all entries.
pub(super) fn bench(
    model: &CommandModel,
    options: &Options,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let tables = model.model.tables();
    let mut predictor = Predictor::new(model.model, options.run.trainer.clone())?;
    writeln!(output, "model             {}, {}", tables.name, predictor.device_line())?;
    for (entry, of_entry) in tables.entries.iter().enumerate() {
        let batch = random_inputs(tables.inputs_of(entry), options.run.trainer.seed);
        let batch: Vec<_> = batch.iter().map(Values::view).collect();
        for _ in 0..N_WARM_UP {
            predictor.predict(entry, &batch)?;
        }
        let mut times = Times::default();
        for _ in 0..options.n_measured.unwrap_or(N_MEASURED) {
            times.time(|| predictor.predict(entry, &batch))?;
        }
        if tables.entries.len() > 1 {
            writeln!(output, "entry             {}", of_entry.name)?;
        }
        writeln!(output, "predictions/s     {:.2}", times.per_second())?;
        writeln!(output, "prediction        {times}")?;
        let (predicted, counted) = (of_entry.bytes, predictor.moved_bytes());
        writeln!(output, "bytes             {predicted} predicted, {counted} counted")?;
        writeln!(output, "feeding           {}", feeding(tables, entry, predictor.fed_bytes()))?;
    }
    writeln!(output, "memory            {}", memory(tables, predictor.memory_beside_plan()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use soybean_runtime::Device;

    use super::{super::flags::Options, *};
    use crate::run::TrainConfig;

    /// Its second entry makes its parameters in another order.
    #[soybean::model(gpus = 4, mode = "inference", entries = (few, many = 3))]
    mod sizes {
        use soybean::{nn, prelude::*};

        fn features(x: Tensor) -> Tensor {
            nn::linear(x, 12).tanh()
        }

        pub(crate) fn few(x: Tensor<f32, 2, 6>) -> Tensor {
            nn::layer_norm(features(x)) + state("seen", [12])
        }

        pub(crate) fn many(x: Tensor<f32, 8, 12>, y: Tensor<f32, 8, 6>) -> (Tensor, Tensor) {
            let h = nn::layer_norm(x);
            let z = h * features(y);
            (z, state("seen", [12]).assign(z.sum(0)))
        }
    }

    fn options() -> Options {
        let mut run = TrainConfig::default();
        run.trainer.device = Device::Cpu;
        Options::new(run)
    }

    #[test]
    fn all_entries_are_checked_and_measured() {
        type N = sizes::Network;
        let model = CommandModel::of::<N>();
        let mut output = Vec::new();
        let outcome = check(&model, &options(), &mut output);
        let text = String::from_utf8(output).unwrap();
        assert!(outcome.is_ok(), "{text}");
        for line in
            ["output `output.0` by `few`", "output `z` by `many`", "bytes of a prediction by"]
        {
            assert!(text.contains(line), "{text}");
        }
        let mut output = Vec::new();
        assert!(bench(&model, &options(), &mut output).is_ok());
        let text = String::from_utf8(output).unwrap();
        assert_eq!(text.matches("predictions/s").count(), 2, "{text}");
    }
}
