//! The metrics of a run as a table of epochs and as plots over steps.

mod chart;
mod scale;

use super::record::{EvaluationRecord, Record, StepRecord};
use chart::{Color, Curve, Panel};
use scale::Progression;

/// Maximum number of points of a curve; it bounds the size of the file.
const MAX_POINTS: usize = 1000;

/// Returns a row for each epoch that was evaluated at its end.
pub(crate) fn csv(records: &[Record]) -> String {
    let names = metric_names(records);
    let row = |it: &EvaluationRecord| {
        let value = |name: &String| it.metric(name).map(|it| it.to_string()).unwrap_or_default();
        let metrics: String = names.iter().map(|name| value(name) + ",").collect();
        format!(
            "{},{},{},{metrics}{:.0}\n",
            it.epoch, it.train_loss, it.held_out_loss, it.samples_per_second
        )
    };
    let names: String = names.iter().map(|name| quoted(name) + ",").collect();
    let head = format!("epoch,train_loss,held_out_loss,{names}samples_per_second\n");
    evaluations(records).filter(|it| it.ends_epoch).fold(head, |text, it| text + &row(it))
}

/// Quotes a value of a table (RFC 4180).
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn evaluations(records: &[Record]) -> impl Iterator<Item = &EvaluationRecord> {
    records.iter().filter_map(|it| match it {
        Record::Evaluation(it) => Some(it),
        Record::Step(_) => None,
    })
}

fn steps(records: &[Record]) -> impl Iterator<Item = &StepRecord> {
    records.iter().filter_map(|it| match it {
        Record::Step(it) => Some(it),
        Record::Evaluation(_) => None,
    })
}

/// Returns all names of metrics in the order of their first use.
fn metric_names(records: &[Record]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in evaluations(records).flat_map(|it| &it.metrics) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Draws a panel for the losses, one for each metric and one for the learning rate.
pub(crate) fn svg(records: &[Record]) -> String {
    let panels: Vec<Panel> = panels(records).into_iter().filter(Panel::has_points).collect();
    chart::svg(&panels)
}

fn panels(records: &[Record]) -> Vec<Panel> {
    let of_steps = |value: fn(&StepRecord) -> f64| {
        steps(records).map(|it| (it.step as f64, value(it))).collect::<Vec<_>>()
    };
    let held_out = evaluations(records).map(|it| (it.step as f64, it.held_out_loss)).collect();
    let loss = vec![
        Curve {
            name: "training",
            color: Color::Training,
            points: downsampled(&of_steps(|it| it.loss.into())),
        },
        Curve { name: "held out", color: Color::HeldOut, points: held_out },
    ];
    let metric = |name: &String| {
        let point = |it: &EvaluationRecord| Some((it.step as f64, it.metric(name)?));
        let points = evaluations(records).filter_map(point).collect();
        let curves = vec![Curve { name: "held out", color: Color::HeldOut, points }];
        Panel { title: name.clone(), curves, progression: Progression::Linear }
    };
    let rates = downsampled(&of_steps(|it| it.learning_rate.into()));
    let rate = Curve { name: "learning rate", color: Color::Training, points: rates };
    let loss =
        Panel { title: "loss".to_owned(), curves: loss, progression: Progression::Logarithmic };
    let mut panels = vec![loss];
    panels.extend(metric_names(records).iter().map(metric));
    panels.push(Panel {
        title: "learning rate".to_owned(),
        curves: vec![rate],
        progression: Progression::Linear,
    });
    panels
}

/// Returns means of neighbors, at most `MAX_POINTS`.
fn downsampled(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let n = points.len().div_ceil(MAX_POINTS).max(1);
    let mean = |points: &[(f64, f64)]| {
        let sum = points.iter().fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        (sum.0 / points.len() as f64, sum.1 / points.len() as f64)
    };
    points.chunks(n).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::record::tests::{evaluation, step};

    #[test]
    fn a_run_is_a_table_and_plots() {
        let within = EvaluationRecord { ends_epoch: false, ..evaluation(3, Some(0.75)) };
        let records = [
            Record::Evaluation(evaluation(1, Some(0.25))),
            Record::Evaluation(evaluation(2, None)),
            Record::Evaluation(within),
        ];
        let table = csv(&records);
        let head = "epoch,train_loss,held_out_loss,accuracy,samples_per_second\n";
        assert_eq!(table, format!("{head}1,1.5,2.5,0.25,1000\n2,1.5,2.5,,1000\n"));
        let named = |name: &str| EvaluationRecord {
            metrics: vec![(name.to_owned(), 1.0)],
            ..evaluation(1, None)
        };
        let table = csv(&[Record::Evaluation(named("top 3, \"sure\""))]);
        let head = "epoch,train_loss,held_out_loss,\"top 3, \"\"sure\"\"\",samples_per_second\n";
        assert_eq!(table, format!("{head}1,1.5,2.5,1,1000\n"));
        let steps: Vec<Record> = (1..=5000).map(|it| Record::Step(step(it))).collect();
        let drawing = svg(&[&steps[..], &records].concat());
        for part in ["accuracy", "loss", "learning rate", "step"] {
            assert!(drawing.contains(part), "{part}");
        }
        assert!(drawing.len() < 200_000, "{} bytes", drawing.len());
        assert!(svg(&[]).contains("</svg>"), "a run without steps has an empty plot");
    }
}
