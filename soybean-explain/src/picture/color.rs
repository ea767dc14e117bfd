//! Colors of placements. A tensor has one stripe for each axis of the mesh.

use soybean_plan::{Placement, Tiling};

/// The colors of one placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Color {
    /// The CSS class of the stripes in SVG.
    pub(super) class: &'static str,
    /// The fill color behind dark text.
    pub(super) light: &'static str,
    /// The fill color behind light text.
    pub(super) dark: &'static str,
}

const REPLICATED: Color = Color { class: "r", light: "#e6e8eb", dark: "#3a3f47" };
const PARTIAL: Color = Color { class: "red", light: "#f3c3c3", dark: "#6b2b2b" };
/// The colors of splits of dim 0, 1, ..; the last is that of all further dims.
const SPLITS: [Color; 6] = [
    Color { class: "p0", light: "#b9d7f8", dark: "#1f4a7c" },
    Color { class: "p1", light: "#fbd0a3", dark: "#7a4312" },
    Color { class: "p2", light: "#bfe5bf", dark: "#255b2c" },
    Color { class: "p3", light: "#dcc8f3", dark: "#52347c" },
    Color { class: "p4", light: "#b5e4e0", dark: "#1a5a57" },
    Color { class: "p5", light: "#f7c3de", dark: "#76305a" },
];

fn all() -> impl Iterator<Item = Color> {
    [REPLICATED, PARTIAL].into_iter().chain(SPLITS)
}

/// Returns the CSS rules of stripes, for light and dark color schemes.
pub(super) fn rules() -> String {
    let rule = |class: &str, fill: &str| format!(".stripe.{class} {{ fill: {fill}; }}\n");
    let light: String = all().map(|it| rule(it.class, it.light)).collect();
    let dark: String = all().map(|it| rule(it.class, it.dark)).collect();
    format!("{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n")
}

/// Returns the same for a page with a scheme of its own and a variable for each color.
pub(crate) fn theme() -> String {
    let variable =
        |it: Color| format!("  --{}: light-dark({}, {});\n", it.class, it.light, it.dark);
    let rule = |it: Color| format!(".stripe.{0} {{ fill: var(--{0}); }}\n", it.class);
    let (variables, rules): (String, String) =
        (all().map(variable).collect(), all().map(rule).collect());
    format!(":root {{\n{variables}}}\n{rules}")
}

/// Returns the color of a placement.
pub(super) fn of(placement: Placement) -> Color {
    match placement {
        Placement::Replicated => REPLICATED,
        Placement::Partial => PARTIAL,
        Placement::Split(dim) => SPLITS[(dim as usize).min(SPLITS.len() - 1)],
    }
}

/// Returns the stripes of a tiling: runs of axes with the same placement, with their numbers of
/// axes. A single rank has no axes, but one stripe.
pub(super) fn stripes(tiling: &Tiling) -> Vec<(Color, usize)> {
    let mut stripes: Vec<(Color, usize)> = Vec::new();
    for &placement in tiling.placements() {
        match stripes.last_mut() {
            Some((color, n_axes)) if *color == of(placement) => *n_axes += 1,
            _ => stripes.push((of(placement), 1)),
        }
    }
    if stripes.is_empty() { vec![(REPLICATED, 1)] } else { stripes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_for_each_run_of_axes() {
        use Placement::{Replicated, Split};
        let classes = |placements: &[Placement]| -> Vec<(&str, usize)> {
            stripes(&Tiling::new(placements)).iter().map(|(it, n)| (it.class, *n)).collect()
        };
        assert_eq!(classes(&[Split(0), Split(0), Split(1)]), [("p0", 2), ("p1", 1)]);
        assert_eq!(classes(&[Split(7), Replicated]), [("p5", 1), ("r", 1)]);
        assert_eq!(classes(&[]), [("r", 1)]);
    }
}
