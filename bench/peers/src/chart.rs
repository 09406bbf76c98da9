//! SVG charts: one panel per workload, one bar per engine, and a line from the least to the greatest sample.

use sievedb_report::svg::Svg;

use crate::statistics::short;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    pub(crate) name: &'static str,
    pub(crate) colour: &'static str,
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

/// The bars of one workload, with their own scale.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Panel {
    pub(crate) title: String,
    /// The unit, and whether longer bars are better.
    pub(crate) unit: &'static str,
    pub(crate) bars: Vec<Bar>,
}

const WIDTH: f64 = 900.0;
const LEFT: f64 = 210.0;
/// Room for the figure after the longest bar.
const RIGHT: f64 = 110.0;
const BAR: f64 = 16.0;
const GAP: f64 = 4.0;
const HEAD: f64 = 30.0;
const FOOT: f64 = 14.0;
const TOP: f64 = 46.0;

impl Panel {
    fn height(&self) -> f64 {
        HEAD + self.bars.len() as f64 * (BAR + GAP) + FOOT
    }
}

pub(crate) fn svg(title: &str, panels: &[Panel]) -> String {
    let height: f64 = TOP + panels.iter().map(Panel::height).sum::<f64>();
    let mut svg = Svg::new(&format!(
        "viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\""
    ));
    svg.rectangle(0.0, 0.0, WIDTH, height, "fill=\"#ffffff\"");
    svg.text(16.0, 28.0, "font-size=\"18\" font-weight=\"bold\"", title);
    let mut top = TOP;
    for panel in panels {
        draw(&mut svg, top, panel);
        top += panel.height();
    }
    svg.finish()
}

fn draw(svg: &mut Svg, top: f64, panel: &Panel) {
    svg.text(16.0, top + 16.0, "font-weight=\"bold\"", &format!("{} ({})", panel.title, panel.unit));
    let longest = panel.bars.iter().map(|bar| bar.max).fold(f64::MIN_POSITIVE, f64::max);
    let length = |value: f64| value / longest * (WIDTH - LEFT - RIGHT);
    for (place, bar) in panel.bars.iter().enumerate() {
        let y = top + HEAD + place as f64 * (BAR + GAP);
        let middle = y + BAR / 2.0;
        svg.text(LEFT - 8.0, middle + 4.0, "text-anchor=\"end\"", bar.name);
        svg.rectangle(LEFT, y, length(bar.median).max(1.0), BAR, &format!("fill=\"{}\"", bar.colour));
        let (from, to) = (LEFT + length(bar.min), LEFT + length(bar.max));
        svg.rectangle(from, middle - 1.0, (to - from).max(1.0), 2.0, "fill=\"#333333\"");
        svg.text(to + 6.0, middle + 4.0, "", &short(bar.median));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(median: f64) -> Bar {
        Bar { name: "a", colour: "#123456", min: median, median, max: median }
    }

    #[test]
    fn the_length_of_a_bar_is_its_share_of_the_longest() {
        let panel = Panel { title: "t < u".into(), unit: "per second", bars: vec![bar(100.0), bar(25.0)] };
        let drawn = svg("all", &[panel]);
        let widths: Vec<f64> = drawn
            .lines()
            .filter(|line| line.contains("#123456"))
            .map(|line| line.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(widths, [WIDTH - LEFT - RIGHT, (WIDTH - LEFT - RIGHT) / 4.0]);
        assert!(drawn.contains("t &lt; u (per second)"));
    }
}
