//! Charts as SVG, in the style of a plan's page: panels below each other with one scale of steps,
//! and names beside the ends of curves.

use std::fmt::Write as _;

use soybean_plan::xml_text;

use super::scale::{Progression, Scale};

/// The size of a panel, in pixels.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 240.0;
/// The area of the curves within a panel.
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 130.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = HEIGHT - 34.0;
/// The least distance of names below each other.
const LINE: f64 = 16.0;
/// The largest number of points of a curve that are marked.
const MAX_MARKS: usize = 60;
const STYLE: &str = include_str!("chart.css");

/// The color of a curve.
#[derive(Clone, Copy, Debug)]
pub(super) enum Color {
    /// Measured on training batches.
    Training,
    /// Measured on held-out data.
    HeldOut,
}

impl Color {
    const fn class(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::HeldOut => "held-out",
        }
    }
}

/// A named curve of a plot.
pub(super) struct Curve {
    pub(super) name: &'static str,
    pub(super) color: Color,
    /// Steps and values.
    pub(super) points: Vec<(f64, f64)>,
}

impl Curve {
    fn finite(&self) -> impl Iterator<Item = (f64, f64)> {
        self.points.iter().copied().filter(|it| it.1.is_finite())
    }
}

/// Several curves with one scale.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) curves: Vec<Curve>,
    pub(super) progression: Progression,
}

impl Panel {
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.curves.iter().flat_map(Curve::finite)
    }

    pub(super) fn has_points(&self) -> bool {
        self.points().next().is_some()
    }
}

/// Draws panels that have points.
pub(super) fn svg(panels: &[Panel]) -> String {
    let height = HEIGHT * panels.len().max(1) as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
         <title>metrics of a run</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n"
    );
    let last_step = panels.iter().flat_map(Panel::points).map(|it| it.0).fold(1.0, f64::max);
    for (number, panel) in panels.iter().enumerate() {
        let _ = writeln!(text, "<g transform=\"translate(0 {})\">", HEIGHT * number as f64);
        draw(&mut text, panel, Scale::of_range(0.0, last_step));
        text.push_str("</g>\n");
    }
    text + "</svg>\n"
}

fn draw(text: &mut String, panel: &Panel, steps: Scale) {
    let values = Scale::around(panel.points().map(|it| it.1), panel.progression);
    let x = |step: f64| LEFT + (RIGHT - LEFT) * steps.position(step);
    let y = |value: f64| BOTTOM - (BOTTOM - TOP) * values.position(value);
    let _ = writeln!(
        text,
        "<text class=\"name\" x=\"{LEFT}\" y=\"22\">{}</text>",
        xml_text(&panel.title)
    );
    for tick in values.ticks() {
        let (at, label) = (y(tick.value), tick.label);
        let _ = writeln!(
            text,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
            LEFT - 8.0,
            at + 4.0,
        );
    }
    // Steps are whole numbers.
    for tick in steps.ticks().into_iter().filter(|it| it.value.fract() == 0.0) {
        let (at, label) = (x(tick.value), tick.label);
        let _ = writeln!(
            text,
            "<line class=\"tick\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{BOTTOM}\" y2=\"{:.1}\"/>\
             <text class=\"middle\" x=\"{at:.1}\" y=\"{:.1}\">{label}</text>",
            BOTTOM + 4.0,
            BOTTOM + 17.0,
        );
    }
    let _ = writeln!(
        text,
        "<line class=\"tick\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{BOTTOM}\" y2=\"{BOTTOM}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\">step</text>",
        RIGHT + 26.0,
        BOTTOM + 17.0,
    );
    for curve in &panel.curves {
        let points: Vec<[f64; 2]> = curve.finite().map(|it| [x(it.0), y(it.1)]).collect();
        text.push_str(&drawn(curve.color, &points));
    }
    text.push_str(&names(panel, &y));
}

/// Draws a curve, with marks if it has few points.
fn drawn(color: Color, points: &[[f64; 2]]) -> String {
    let class = color.class();
    let pairs: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
    let mut text = format!("<polyline class=\"{class}\" points=\"{}\"/>\n", pairs.join(" "));
    if points.len() <= MAX_MARKS {
        for [x, y] in points {
            let _ =
                writeln!(text, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>");
        }
    }
    text
}

/// Draws the names of curves beside their last points, from top to bottom.
fn names(panel: &Panel, y: &dyn Fn(f64) -> f64) -> String {
    let end = |it: &Curve| Some((y(it.finite().last()?.1), it.name, it.color));
    let mut ends: Vec<_> = panel.curves.iter().filter_map(end).collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The last name must not stand below the panel.
    let lowest = BOTTOM - LINE * ends.len().saturating_sub(1) as f64;
    let mut next = TOP;
    let mut text = String::new();
    for (at, (y, name, color)) in ends.into_iter().enumerate() {
        let place = y.clamp(next, lowest + LINE * at as f64);
        next = place + LINE;
        let _ = writeln!(
            text,
            "<text class=\"{}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            color.class(),
            RIGHT + 10.0,
            place + 4.0,
            xml_text(name),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    // Guards: names that break the file.
    #[test]
    fn names_are_escaped() {
        let curve = |name| Curve { name, color: Color::Training, points: vec![(0.0, 1.0)] };
        let curves = vec![curve("<b>&\u{1b}\u{7}")];
        let title = "</text>\u{0}".to_owned();
        let drawing = svg(&[Panel { title, curves, progression: Progression::Linear }]);
        assert!(drawing.contains("&lt;b&gt;&amp;\\u{1b}\\u{7}</text>"), "{drawing}");
        assert!(drawing.contains("&lt;/text&gt;\\u{0}"), "{drawing}");
        assert!(!drawing.chars().any(|it| it.is_control() && it != '\n'));
    }

    #[test]
    fn names_stand_beside_the_curves_and_apart() {
        let curve = |name, last| Curve {
            name,
            color: Color::Training,
            points: vec![(0.0, 5.0), (9.0, last), (10.0, f64::NAN)],
        };
        let curves = vec![curve("one", 1.0), curve("two", 1.001), curve("three", 4.0)];
        let panel =
            Panel { title: "a < b".to_owned(), curves, progression: Progression::Logarithmic };
        let drawing = svg(&[panel]);
        assert!(drawing.contains("a &lt; b") && !drawing.contains("NaN"));
        let place = |name: &str| -> [f64; 2] {
            let (before, _) = drawing.split_once(&format!(">{name}</text>")).unwrap();
            let (_, tag) = before.rsplit_once('<').unwrap();
            let number = |attribute: &str| {
                let (_, rest) = tag.split_once(attribute).unwrap();
                rest.split('"').nth(1).unwrap().parse().unwrap()
            };
            [number(" x="), number(" y=")]
        };
        let [one, two, three] = ["one", "two", "three"].map(place);
        assert!([one, two, three].iter().all(|it| it[0] > RIGHT && it[1] < HEIGHT));
        assert!(one[1] - two[1] >= LINE - 0.1 && two[1] - three[1] > LINE);
    }
}
