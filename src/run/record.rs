//! Records of training steps and evaluations: the lines of `metrics.jsonl`.

use serde_json::{Map, Number, Value};

/// The record of a training step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRecord {
    /// The number of the step, from 1.
    pub step: u64,
    /// The number of its epoch, from 1.
    pub epoch: u64,
    /// The number of its batch in the epoch, from 1.
    pub batch: u64,
    /// The loss of its batch before the update.
    pub loss: f32,
    /// The learning rate of its update.
    pub learning_rate: f32,
    /// The norm of all gradients, if the model computes it.
    pub gradient_norm: Option<f32>,
    /// The number of updates of this run that were skipped because a number was not finite.
    pub n_skipped: u64,
    /// Samples per second since the last line.
    pub samples_per_second: f64,
    /// The fraction of the time since the last line in which steps waited for data.
    pub data_wait: f64,
    /// Seconds since 1970.
    pub time: f64,
}

/// The record of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationRecord {
    /// The number of training steps before it.
    pub step: u64,
    /// The epoch of the last step, from 1.
    pub epoch: u64,
    /// True if that step was the last of its epoch.
    pub ends_epoch: bool,
    /// The mean loss of the epoch's steps so far.
    pub train_loss: f64,
    /// The mean loss of the held-out samples.
    pub held_out_loss: f64,
    /// The metrics that apply to the model.
    pub metrics: Vec<(String, f64)>,
    /// Samples per second of training since the start of the epoch or of the resumed run.
    pub samples_per_second: f64,
    /// The duration of the evaluation.
    pub seconds: f64,
    /// Seconds since 1970.
    pub time: f64,
}

/// A line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Record {
    Step(StepRecord),
    Evaluation(EvaluationRecord),
}

impl EvaluationRecord {
    /// Returns the value of a metric.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|it| it.0 == name).map(|it| it.1)
    }
}

impl Record {
    pub(crate) const fn step(&self) -> u64 {
        match self {
            Self::Step(record) => record.step,
            Self::Evaluation(record) => record.step,
        }
    }

    /// Returns the JSON object in one line.
    pub(crate) fn line(&self) -> String {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| {
            map.insert(key.to_owned(), value);
        };
        match self {
            Self::Step(it) => {
                put("kind", "step".into());
                put("step", it.step.into());
                put("epoch", it.epoch.into());
                put("batch", it.batch.into());
                put("loss", shortest(it.loss));
                put("learning_rate", shortest(it.learning_rate));
                if let Some(norm) = it.gradient_norm {
                    put("gradient_norm", shortest(norm));
                }
                put("skipped", it.n_skipped.into());
                put("samples_per_second", number(it.samples_per_second));
                put("data_wait", number(it.data_wait));
                put("time", number(it.time));
            }
            Self::Evaluation(it) => {
                put("kind", "evaluation".into());
                put("step", it.step.into());
                put("epoch", it.epoch.into());
                put("ends_epoch", it.ends_epoch.into());
                put("train_loss", number(it.train_loss));
                put("held_out_loss", number(it.held_out_loss));
                let metrics = it.metrics.iter().map(|(name, value)| (name.clone(), number(*value)));
                put("metrics", Value::Object(metrics.collect()));
                put("samples_per_second", number(it.samples_per_second));
                put("seconds", number(it.seconds));
                put("time", number(it.time));
            }
        }
        Value::Object(map).to_string()
    }

    /// Parses a line; `None` if it is incomplete.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let whole = |key: &str| value.get(key)?.as_u64();
        let number = |key: &str| value.get(key).map(of_number);
        let single = |key: &str| value.get(key).map(of_single);
        match value.get("kind")?.as_str()? {
            "step" => Some(Self::Step(StepRecord {
                step: whole("step")?,
                epoch: whole("epoch")?,
                batch: whole("batch")?,
                loss: single("loss")?,
                learning_rate: single("learning_rate")?,
                gradient_norm: single("gradient_norm"),
                n_skipped: whole("skipped")?,
                samples_per_second: number("samples_per_second")?,
                data_wait: number("data_wait")?,
                time: number("time")?,
            })),
            "evaluation" => Some(Self::Evaluation(EvaluationRecord {
                step: whole("step")?,
                epoch: whole("epoch")?,
                ends_epoch: value.get("ends_epoch")?.as_bool()?,
                train_loss: number("train_loss")?,
                held_out_loss: number("held_out_loss")?,
                metrics: metrics(value.get("metrics")?)?,
                samples_per_second: number("samples_per_second")?,
                seconds: number("seconds")?,
                time: number("time")?,
            })),
            _ => None,
        }
    }
}

fn metrics(value: &Value) -> Option<Vec<(String, f64)>> {
    Some(value.as_object()?.iter().map(|(name, value)| (name.clone(), of_number(value))).collect())
}

/// Returns a number, or null if JSON cannot represent it, such as NaN.
fn number(number: f64) -> Value {
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

/// Returns the shortest decimal that rounds to this number in single precision.
fn shortest(number: f32) -> Value {
    self::number(number.to_string().parse().unwrap_or(f64::NAN))
}

fn of_number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

#[expect(clippy::cast_possible_truncation, reason = "written in single precision")]
fn of_single(value: &Value) -> f32 {
    of_number(value) as f32
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn step(step: u64) -> StepRecord {
        StepRecord {
            step,
            epoch: 1,
            batch: step,
            loss: 0.1,
            learning_rate: 0.05,
            gradient_norm: None,
            n_skipped: 0,
            samples_per_second: 1000.0,
            data_wait: 0.015625,
            time: 1.5e9,
        }
    }

    pub(crate) fn evaluation(step: u64, accuracy: Option<f64>) -> EvaluationRecord {
        EvaluationRecord {
            step,
            epoch: step,
            ends_epoch: true,
            train_loss: 1.5,
            held_out_loss: 2.5,
            metrics: accuracy.map(|it| ("accuracy".to_owned(), it)).into_iter().collect(),
            samples_per_second: 1000.4,
            seconds: 0.25,
            time: 1.5e9,
        }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let with_norm = StepRecord { gradient_norm: Some(0.3), loss: 1e-30, ..step(3) };
        for record in [
            Record::Step(step(7)),
            Record::Step(with_norm),
            Record::Evaluation(evaluation(9, Some(0.25))),
            Record::Evaluation(evaluation(9, None)),
        ] {
            let line = record.line();
            assert_eq!(Record::read(&line), Some(record), "{line}");
            for cut in 0..line.len() {
                assert_eq!(Record::read(&line[..cut]), None, "cut at {cut}");
            }
        }
        let line = Record::Step(step(7)).line();
        assert!(line.contains(r#""loss":0.1,"#), "the shortest number: {line}");
        let lost = Record::Step(StepRecord { loss: f32::NAN, ..step(7) }).line();
        assert!(lost.contains(r#""loss":null"#), "{lost}");
    }
}
