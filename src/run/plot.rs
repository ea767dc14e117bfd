//! The metrics of a run as a table of epochs and as plots over steps.

use std::error::Error;

use plotters::prelude::{
    BLACK, BLUE, ChartBuilder, DrawingArea, IntoDrawingArea, LineSeries, RED, SVGBackend,
    SeriesLabelPosition, WHITE,
};
use plotters::{coord::Shift, element::PathElement, style::RGBColor};

use super::record::{EvaluationRecord, Record, StepRecord};

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

/// A named curve of a plot.
struct Curve {
    name: &'static str,
    color: RGBColor,
    points: Vec<(f64, f64)>,
}

/// Several curves with one scale.
struct Panel {
    title: String,
    curves: Vec<Curve>,
}

/// Draws a panel for the losses, one for each metric and one for the learning rate.
pub(crate) fn svg(records: &[Record]) -> Result<String, Box<dyn Error>> {
    let panels: Vec<Panel> = panels(records).into_iter().filter(Panel::has_points).collect();
    let mut drawing = String::new();
    {
        let height = 320 * u32::try_from(panels.len().max(1))?;
        let area = SVGBackend::with_string(&mut drawing, (800, height)).into_drawing_area();
        area.fill(&WHITE)?;
        for (panel, area) in panels.iter().zip(area.split_evenly((panels.len().max(1), 1))) {
            draw(&area, panel)?;
        }
        area.present()?;
    }
    Ok(drawing)
}

fn panels(records: &[Record]) -> Vec<Panel> {
    let of_steps = |value: fn(&StepRecord) -> f64| {
        steps(records).map(|it| (it.step as f64, value(it))).collect::<Vec<_>>()
    };
    let held_out = evaluations(records).map(|it| (it.step as f64, it.held_out_loss)).collect();
    let loss = vec![
        Curve {
            name: "training",
            color: BLUE,
            points: downsampled(&of_steps(|it| it.loss.into())),
        },
        Curve { name: "held out", color: RED, points: held_out },
    ];
    let metric = |name: &String| {
        let point = |it: &EvaluationRecord| Some((it.step as f64, it.metric(name)?));
        let points = evaluations(records).filter_map(point).collect();
        let curves = vec![Curve { name: "held out", color: RED, points }];
        Panel { title: name.clone(), curves }
    };
    let rates = downsampled(&of_steps(|it| it.learning_rate.into()));
    let rate = Curve { name: "learning rate", color: BLUE, points: rates };
    let mut panels = vec![Panel { title: "loss".to_owned(), curves: loss }];
    panels.extend(metric_names(records).iter().map(metric));
    panels.push(Panel { title: "learning rate".to_owned(), curves: vec![rate] });
    panels
}

/// Returns means of neighbours, at most `MAX_POINTS`.
fn downsampled(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let n = points.len().div_ceil(MAX_POINTS).max(1);
    let mean = |points: &[(f64, f64)]| {
        let sum = points.iter().fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        (sum.0 / points.len() as f64, sum.1 / points.len() as f64)
    };
    points.chunks(n).map(mean).collect()
}

impl Panel {
    fn points(&self) -> impl Iterator<Item = &(f64, f64)> {
        let finite = |it: &&(f64, f64)| it.1.is_finite();
        self.curves.iter().flat_map(|it| &it.points).filter(finite)
    }

    fn has_points(&self) -> bool {
        self.points().next().is_some()
    }
}

fn draw(area: &DrawingArea<SVGBackend<'_>, Shift>, panel: &Panel) -> Result<(), Box<dyn Error>> {
    let last_step = panel.points().map(|point| point.0).fold(1.0, f64::max);
    let low = panel.points().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let high = panel.points().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
    // A constant curve is drawn in the middle.
    let least = if high == 0.0 { 1e-6 } else { 1e-3 * high.abs() };
    let margin = (0.05 * (high - low)).max(least);
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(35)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..last_step, low - margin..high + margin)?;
    chart.configure_mesh().x_desc("step").draw()?;
    for curve in panel.curves.iter().filter(|it| !it.points.is_empty()) {
        let color = curve.color;
        let points = curve.points.iter().copied().filter(|it| it.1.is_finite());
        chart
            .draw_series(LineSeries::new(points, color))?
            .label(curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    Ok(())
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
        let drawing = svg(&[&steps[..], &records].concat()).expect("an SVG");
        for part in ["accuracy", "loss", "learning rate", "step"] {
            assert!(drawing.contains(part), "{part}");
        }
        assert!(drawing.len() < 200_000, "{} bytes", drawing.len());
        svg(&[]).expect("a run without steps has an empty plot");
    }
}
