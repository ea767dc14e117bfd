//! Plots as SVG. Each says that its times are simulated.

use std::error::Error;

use plotters::{
    chart::ChartContext,
    coord::{Shift, types::RangedCoordf64},
    element::PathElement,
    prelude::{
        BLACK, BLUE, Cartesian2d, ChartBuilder, Circle, Color, DrawingArea, IntoDrawingArea,
        LineSeries, RED, RGBColor, Rectangle, SVGBackend, SeriesLabelPosition, WHITE,
    },
};

use crate::{
    run::{Figures, Plan},
    scaling::Scaling,
    speed_up::{Point, SpeedUp},
};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;
/// A curve's name, its color, and its value at a point.
type Curve = (&'static str, RGBColor, fn(&Point) -> f64);

/// The size of one chart, in pixels.
const CHART: (u32, u32) = (420, 280);
/// Space above the charts.
const TITLE: u32 = 50;
const FONT: &str = "sans-serif";
/// The colors of the plans.
const COLORS: [RGBColor; 4] = [RED, RGBColor(120, 120, 120), BLUE, RGBColor(0, 150, 136)];

/// Draws bars of step times: a chart for each network, a group of bars for each number of GPUs.
pub(crate) fn scaling(networks: &[Scaling]) -> Result<String, Box<dyn Error>> {
    let title =
        "Times of steps, SIMULATED (p2.8xlarge). Full: kernels; light: what communication adds";
    drawing(title, networks, bars)
}

/// Draws curves of the speed-up on all GPUs: a chart for each network.
pub(crate) fn speed_up(networks: &[SpeedUp]) -> Result<String, Box<dyn Error>> {
    let title = "Speed-up of 8 GPUs against one, by batch size, SIMULATED (p2.8xlarge)";
    drawing(title, networks, curves)
}

/// Draws charts in two columns under a title.
fn drawing<T>(
    title: &str,
    charts: &[T],
    draw: fn(&Area<'_>, &T) -> Drawn,
) -> Result<String, Box<dyn Error>> {
    let n_rows = charts.len().div_ceil(2);
    let height = TITLE + CHART.1 * u32::try_from(n_rows)?;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (2 * CHART.0, height)).into_drawing_area();
        area.fill(&WHITE)?;
        let area = area.titled(title, (FONT, 16))?;
        let cells = area.split_evenly((n_rows, 2));
        cells.iter().zip(charts).try_for_each(|(cell, chart)| draw(cell, chart))?;
        area.present()?;
    }
    Ok(text)
}

fn bars(area: &Area<'_>, network: &Scaling) -> Drawn {
    let groups = &network.figures;
    let all = groups.iter().flat_map(|(_, figures)| figures);
    let high = all.map(|it| it.seconds * 1e3).fold(0.0, f64::max) * 1.25;
    let n_places = 5 * groups.len();
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{}, batch {}", network.name, network.batch), (FONT, 14))
        .margin(8)
        .x_label_area_size(25)
        .y_label_area_size(55)
        .build_cartesian_2d(0.0..n_places as f64, 0.0..high)?;
    // A group has four bars and a gap; its label is below the third.
    let label = |at: &f64| {
        let group =
            groups.iter().enumerate().find(|it| (*at - 5.0 * it.0 as f64 - 3.0).abs() < 0.1);
        group.map_or_else(String::new, |(_, (n_gpus, _))| format!("{n_gpus} GPUs"))
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(1)
        .x_labels(n_places + 1)
        .x_label_formatter(&label)
        .y_desc("milliseconds")
        .draw()?;
    for (at, (plan, color)) in Plan::ALL.into_iter().zip(COLORS).enumerate() {
        let bar = |(group, (_, figures)): (usize, &(usize, [Figures; 4]))| {
            let Figures { seconds, compute_seconds, .. } = figures[at];
            let left = 5.0 * group as f64 + at as f64 + 0.6;
            let part = |from: f64, to: f64, strength: f64| {
                let corners = [(left, from * 1e3), (left + 0.8, to * 1e3)];
                Rectangle::new(corners, color.mix(strength).filled())
            };
            [part(0.0, compute_seconds, 1.0), part(compute_seconds, seconds, 0.4)]
        };
        chart
            .draw_series(groups.iter().enumerate().flat_map(bar))?
            .label(plan.name())
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 10, y + 4)], color.filled()));
    }
    legend(&mut chart, SeriesLabelPosition::UpperMiddle)
}

fn curves(area: &Area<'_>, network: &SpeedUp) -> Drawn {
    let points = &network.points;
    let mut chart = ChartBuilder::on(area)
        .caption(network.name, (FONT, 14))
        .margin(8)
        .x_label_area_size(35)
        .y_label_area_size(40)
        .build_cartesian_2d(-0.2..points.len() as f64 - 0.8, 0.0..9.0)?;
    // Batches double from point to point.
    let label = |at: &f64| {
        let point = points.iter().enumerate().find(|it| (*at - it.0 as f64).abs() < 0.1);
        point.map_or_else(String::new, |(_, it)| it.batch.to_string())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(1)
        .x_labels(points.len() + 1)
        .x_label_formatter(&label)
        .x_desc("batch")
        .y_desc("speed-up")
        .draw()?;
    let series: [Curve; 2] =
        [("data", COLORS[0], Point::data), ("soybean", COLORS[2], Point::soybean)];
    for (name, color, value) in series {
        let places = || points.iter().enumerate().map(move |(at, it)| (at as f64, value(it)));
        chart
            .draw_series(LineSeries::new(places(), color))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], color));
        chart.draw_series(places().map(|it| Circle::new(it, 3, color.filled())))?;
    }
    legend(&mut chart, SeriesLabelPosition::LowerRight)
}

fn legend<'a>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>,
    position: SeriesLabelPosition,
) -> Drawn {
    chart
        .configure_series_labels()
        .position(position)
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    Ok(())
}
