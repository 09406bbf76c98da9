//! SVG charts: one panel per workload, one bar per engine. A tick marks the median, a thin line spans the samples. [`HEIGHT_MAX`]
//! determines the columns of panels.

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

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) bars: Vec<Bar>,
}

const WIDTH: f64 = 480.0;
const HEIGHT_MAX: f64 = 1200.0;
const LEFT: f64 = 175.0;
const RIGHT: f64 = 70.0;
const BAR: f64 = 9.0;
const GAP: f64 = 3.0;
const HEAD: f64 = 18.0;
const FOOT: f64 = 7.0;
const TOP: f64 = 58.0;
const LEGEND: &str = "bar and tick: median of the rounds; thin line: least to greatest";

impl Panel {
    fn height(&self) -> f64 {
        HEAD + self.bars.len() as f64 * (BAR + GAP) + FOOT
    }
}

pub(crate) fn svg(title: &str, panels: &[Panel]) -> String {
    let mut layouts = (1..=panels.len()).map(|count| columns(panels, count));
    let columns = layouts.find(|columns| tallest(columns) <= HEIGHT_MAX - TOP).unwrap_or_default();
    let (width, height) = (columns.len() as f64 * WIDTH, TOP + tallest(&columns));
    let mut svg = Svg::picture(width, height, 11, title);
    svg.text(16.0, 44.0, "fill=\"#555555\"", LEGEND);
    for (place, column) in columns.iter().enumerate() {
        let mut top = TOP;
        for panel in *column {
            draw(&mut svg, place as f64 * WIDTH, top, panel);
            top += panel.height();
        }
    }
    svg.finish()
}

fn columns(panels: &[Panel], count: usize) -> Vec<&[Panel]> {
    panels.chunks(panels.len().div_ceil(count)).collect()
}

fn tallest(columns: &[&[Panel]]) -> f64 {
    columns.iter().map(|column| column.iter().map(Panel::height).sum()).fold(0.0, f64::max)
}

fn draw(svg: &mut Svg, left: f64, top: f64, panel: &Panel) {
    svg.text(left + 16.0, top + 13.0, "font-weight=\"bold\"", &format!("{} ({})", panel.title, panel.unit));
    let longest = panel.bars.iter().map(|bar| bar.max).fold(f64::MIN_POSITIVE, f64::max);
    let length = |value: f64| value / longest * (WIDTH - LEFT - RIGHT);
    let start = left + LEFT;
    for (place, bar) in panel.bars.iter().enumerate() {
        let y = top + HEAD + place as f64 * (BAR + GAP);
        let middle = y + BAR / 2.0;
        svg.text(start - 6.0, middle + 4.0, "text-anchor=\"end\"", bar.name);
        svg.rectangle(start, y, length(bar.median).max(1.0), BAR, &format!("fill=\"{}\"", bar.colour));
        let (from, to) = (start + length(bar.min), start + length(bar.max));
        svg.rectangle(from, middle - 0.5, (to - from).max(1.0), 1.0, "fill=\"#333333\"");
        svg.rectangle(start + length(bar.median) - 1.0, y - 1.0, 2.0, BAR + 2.0, "fill=\"#000000\"");
        svg.text(to + 5.0, middle + 4.0, "", &short(bar.median));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(median: f64) -> Bar {
        Bar { name: "a", colour: "#123456", min: median, median, max: median }
    }

    fn panel(bars: Vec<Bar>) -> Panel {
        Panel { title: "t < u".into(), unit: "per second", bars }
    }

    #[test]
    fn the_length_of_a_bar_is_its_share_of_the_longest() {
        let drawn = svg("all", &[panel(vec![bar(100.0), bar(25.0)])]);
        let widths: Vec<f64> = drawn
            .lines()
            .filter(|line| line.contains("#123456"))
            .map(|line| line.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        let all = WIDTH - LEFT - RIGHT;
        assert!((widths[0] - all).abs() < 0.1 && (widths[1] - all / 4.0).abs() < 0.1, "{widths:?}");
        assert!(drawn.contains("t &lt; u (per second)"));
    }

    #[test]
    fn a_tick_is_at_the_median() {
        let spread = Bar { min: 20.0, median: 50.0, max: 100.0, ..bar(0.0) };
        let tick = format!("x=\"{:.1}\"", LEFT + (WIDTH - LEFT - RIGHT) / 2.0 - 1.0);
        let drawn = svg("all", &[panel(vec![spread])]);
        assert!(drawn.lines().any(|line| line.contains("#000000") && line.contains(&tick)), "{drawn}");
        assert!(drawn.contains(LEGEND));
    }

    #[test]
    fn a_chart_of_many_panels_has_columns_and_is_no_taller_than_a_screen() {
        for count in [1, 7, 28, 80] {
            let panels = vec![panel(vec![bar(1.0); 6]); count];
            let drawn = svg("all", &panels);
            let height: f64 =
                drawn.split("height=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
            assert!(height <= HEIGHT_MAX, "{count}: {height}");
            assert_eq!(drawn.matches("t &lt; u").count(), count);
        }
    }
}
