//! What a run leaves behind: its metrics as a table and as a plot.

use std::{error::Error, fs, path::Path};

use plotters::prelude::{
    BLACK, BLUE, ChartBuilder, DrawingArea, IntoDrawingArea, LineSeries, RED, SVGBackend,
    SeriesLabelPosition, WHITE,
};
use plotters::{coord::Shift, element::PathElement, style::RGBColor};

use super::Failure;

/// What is known after an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Epoch {
    pub(super) number: usize,
    /// The mean of the losses of the training steps.
    pub(super) train_loss: f64,
    pub(super) held_out_loss: f64,
    /// The share of held-out samples whose class has the largest logit, if the model gives logits.
    pub(super) accuracy: Option<f64>,
    pub(super) samples_per_second: f64,
}

/// Writes `metrics.csv` and `metrics.svg` into `folder`.
pub(super) fn save(epochs: &[Epoch], folder: &Path) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::Work(format!("cannot write the metrics into {}: {error}", folder.display()))
    };
    fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    fs::write(folder.join("metrics.csv"), csv(epochs)).map_err(|error| failed(&error))?;
    let drawing = svg(epochs).map_err(|error| failed(&error))?;
    fs::write(folder.join("metrics.svg"), drawing).map_err(|error| failed(&error))
}

fn csv(epochs: &[Epoch]) -> String {
    let row = |it: &Epoch| {
        let accuracy = it.accuracy.map(|accuracy| accuracy.to_string()).unwrap_or_default();
        format!(
            "{},{},{},{accuracy},{:.0}\n",
            it.number, it.train_loss, it.held_out_loss, it.samples_per_second
        )
    };
    let head = "epoch,train_loss,held_out_loss,accuracy,samples_per_second\n";
    epochs.iter().fold(head.to_owned(), |text, epoch| text + &row(epoch))
}

/// A named curve of a plot: one value for each epoch that has one.
struct Curve {
    name: &'static str,
    color: RGBColor,
    points: Vec<(f64, f64)>,
}

fn curve(
    name: &'static str,
    color: RGBColor,
    epochs: &[Epoch],
    value: impl Fn(&Epoch) -> Option<f64>,
) -> Curve {
    let points = epochs.iter().filter_map(|epoch| Some((epoch.number as f64, value(epoch)?)));
    Curve { name, color, points: points.collect() }
}

fn svg(epochs: &[Epoch]) -> Result<String, Box<dyn Error>> {
    let loss = [
        curve("training", BLUE, epochs, |it| Some(it.train_loss)),
        curve("held out", RED, epochs, |it| Some(it.held_out_loss)),
    ];
    let accuracy = [curve("held out", RED, epochs, |it| it.accuracy)];
    let has_accuracy = accuracy.iter().any(|curve| !curve.points.is_empty());
    let mut drawing = String::new();
    {
        let height = if has_accuracy { 640 } else { 320 };
        let area = SVGBackend::with_string(&mut drawing, (800, height)).into_drawing_area();
        area.fill(&WHITE)?;
        let (upper, lower) = area.split_vertically(320);
        draw(&upper, "loss", &loss)?;
        if has_accuracy {
            draw(&lower, "accuracy", &accuracy)?;
        }
        area.present()?;
    }
    Ok(drawing)
}

fn draw(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    curves: &[Curve],
) -> Result<(), Box<dyn Error>> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let last_epoch = points().map(|point| point.0).fold(1.0, f64::max);
    let low = points().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let high = points().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
    if !(low.is_finite() && high.is_finite()) {
        return Ok(());
    }
    let margin = (0.05 * (high - low)).max(1e-6);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(35)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..last_epoch, low - margin..high + margin)?;
    chart.configure_mesh().x_desc("epoch").draw()?;
    for curve in curves {
        let color = curve.color;
        chart
            .draw_series(LineSeries::new(curve.points.iter().copied(), color))?
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

    #[test]
    fn a_run_is_a_table_and_a_plot() {
        let epoch = |number, accuracy| Epoch {
            number,
            train_loss: 1.5,
            held_out_loss: 2.5,
            accuracy,
            samples_per_second: 1000.4,
        };
        let table = csv(&[epoch(1, Some(0.25)), epoch(2, None)]);
        assert!(table.ends_with("\n1,1.5,2.5,0.25,1000\n2,1.5,2.5,,1000\n"), "{table}");
        let drawing = svg(&[epoch(1, Some(0.25)), epoch(2, Some(0.5))]).expect("an SVG");
        assert!(drawing.contains("accuracy") && drawing.contains("loss"));
    }
}
