//! A chart of a quantity on a logarithmic scale by bits per key. Lines are stretched to the width of the page; labels
//! and points keep their size.

use serde_json::json;

use crate::svg::Svg;
use crate::units::{bytes, significant};

pub(crate) const POINTS: usize = 97;

const BITS: (f64, f64) = (16.0, 64.0);

const FLOOR: f64 = -7.0;

pub(crate) struct Mark {
    pub(crate) left: f64,
    pub(crate) bottom: f64,
    pub(crate) words: String,
}

pub(crate) struct Curve {
    pub(crate) class: &'static str,
    pub(crate) name: &'static str,
    pub(crate) values: Vec<f64>,
}

pub(crate) struct Point {
    pub(crate) class: &'static str,
    pub(crate) name: &'static str,
    pub(crate) mark: Mark,
}

pub(crate) struct Chart {
    pub(crate) svg: String,
    pub(crate) unit: &'static str,
    pub(crate) bits: Vec<Mark>,
    pub(crate) decades: Vec<Mark>,
    pub(crate) points: Vec<Point>,
    pub(crate) is_right: bool,
    pub(crate) legend: Vec<(&'static str, &'static str)>,
    /// Data for the script of the page: curve names, and for each position bits, memory and values.
    pub(crate) data: String,
}

pub(crate) fn bits(now: f64) -> Vec<f64> {
    let most = (1.4 * now).ceil().clamp(BITS.0, BITS.1);
    (0..POINTS).map(|point| most * point as f64 / (POINTS - 1) as f64).collect()
}

pub(crate) fn draw(
    unit: &'static str,
    keys: u64,
    bits: &[f64],
    curves: &[Curve],
    now: f64,
    points: &[(&'static str, &'static str, f64)],
) -> Chart {
    let most = bits[bits.len() - 1];
    let values =
        || curves.iter().flat_map(|curve| &curve.values).chain(points.iter().map(|(_, _, value)| value));
    let bottom = values().copied().fold(1.0, f64::min).log10().floor().max(FLOOR);
    let top = values().copied().fold(1.0, f64::max).log10().ceil().max(bottom + 1.0);
    let up = |value: f64| (100.0 * (value.log10() - bottom) / (top - bottom)).clamp(0.0, 100.0);
    let left = |bits: f64| (100.0 * bits / most).clamp(0.0, 100.0);

    let mut svg = Svg::new(&format!(
        "viewBox=\"0 0 100 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"bits per key against {unit}\""
    ));
    let decades: Vec<i32> = (bottom as i32..=top as i32).collect();
    for &decade in &decades {
        let y = 100.0 - up(10f64.powi(decade));
        svg.polyline([(0.0, y), (100.0, y)], "class=\"grid\"");
    }
    for curve in curves {
        let points = bits.iter().zip(&curve.values).map(|(&bits, &value)| (left(bits), 100.0 - up(value)));
        svg.polyline(points, &format!("class=\"{}\"", curve.class));
    }
    svg.polyline(points.iter().map(|&(_, _, value)| (left(now), 100.0 - up(value))), "class=\"gain\"");

    let step = [2.0, 4.0, 8.0, 16.0].into_iter().find(|step| most / step <= 8.0).unwrap_or(16.0);
    let ticks = (0..).map(|tick| step * f64::from(tick)).take_while(|&bits| bits <= most);
    let place = |(at, &bits): (usize, &f64)| {
        let mut place = vec![format!("{bits:.1}"), bytes((bits * keys as f64 / 8.0) as u64)];
        place.extend(curves.iter().map(|curve| significant(curve.values[at])));
        place
    };
    let names: Vec<&str> = curves.iter().map(|curve| curve.name).collect();
    let places: Vec<Vec<String>> = bits.iter().enumerate().map(place).collect();
    Chart {
        svg: svg.finish(),
        unit,
        bits: ticks.map(|bits| Mark { left: left(bits), bottom: 0.0, words: format!("{bits}") }).collect(),
        decades: decades
            .iter()
            .map(|&decade| Mark { left: 0.0, bottom: up(10f64.powi(decade)), words: power(decade) })
            .collect(),
        points: points
            .iter()
            .map(|&(class, name, value)| {
                let mark = Mark { left: left(now), bottom: up(value), words: significant(value) };
                Point { class, name, mark }
            })
            .collect(),
        is_right: left(now) > 75.0,
        legend: curves.iter().map(|curve| (curve.class, curve.name)).collect(),
        data: json!({ "names": names, "places": places }).to_string(),
    }
}

fn power(decade: i32) -> String {
    match decade {
        ..-4 => format!("10⁻{}", ["⁵", "⁶", "⁷"][(-decade - 5).clamp(0, 2) as usize]),
        _ => format!("{:.*}", usize::try_from(-decade).unwrap_or(0), 10f64.powi(decade)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_is_inside_the_drawing() {
        for (now, value) in [(0.0, 1.0), (10.0, 0.001), (200.0, 0.0), (5.0, 40.0)] {
            let bits = bits(now);
            let values = bits.iter().map(|bits| 2f64.powf(-bits)).collect();
            let curve = Curve { class: "best", name: "best", values };
            let chart = draw("reads", 100, &bits, &[curve], now, &[("here", "here", value)]);
            for mark in
                chart.bits.iter().chain(&chart.decades).chain(chart.points.iter().map(|point| &point.mark))
            {
                assert!(
                    (0.0..=100.0).contains(&mark.left) && (0.0..=100.0).contains(&mark.bottom),
                    "{}",
                    mark.words
                );
            }
            assert!(!chart.svg.contains("NaN") && !chart.svg.contains("inf"), "{}", chart.svg);
            assert!(chart.decades.len() >= 2 && chart.bits.len() >= 4);
        }
    }

    #[test]
    fn small_powers_of_ten_have_an_exponent() {
        assert_eq!([2, 0, -3, -4, -5, -7].map(power), ["100", "1", "0.001", "0.0001", "10⁻⁵", "10⁻⁷"]);
    }
}
