//! SVG, written into a string. Attributes must be well-formed; texts are escaped.
//!
//! ```
//! use sievedb_report::svg::Svg;
//!
//! let mut svg = Svg::new("viewBox=\"0 0 20 10\"");
//! svg.rectangle(0.0, 0.0, 20.0, 10.0, "fill=\"#eee\"");
//! svg.text(2.0, 8.0, "", "a < b");
//! assert!(svg.finish().contains("<text x=\"2.0\" y=\"8.0\">a &lt; b</text>"));
//! ```

use std::fmt::Write as _;

/// A drawing. Coordinates have one decimal.
#[derive(Debug)]
pub struct Svg(String);

impl Svg {
    /// Creates a drawing; `attributes` belong to the root element.
    #[must_use]
    pub fn new(attributes: &str) -> Self {
        Self(format!("<svg xmlns=\"http://www.w3.org/2000/svg\" {attributes}>\n"))
    }

    /// A stand-alone picture with a white background and a title.
    #[must_use]
    pub fn picture(width: f64, height: f64, font_size: u32, title: &str) -> Self {
        let mut svg = Self::new(&format!(
            "viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"{font_size}\""
        ));
        svg.rectangle(0.0, 0.0, width, height, "fill=\"#ffffff\"");
        svg.title(26.0, title);
        svg
    }

    /// Adds a title in large letters.
    pub fn title(&mut self, y: f64, words: &str) {
        self.text(16.0, y, "font-size=\"18\" font-weight=\"bold\"", words);
    }

    /// Adds a rectangle.
    pub fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, attributes: &str) {
        let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"");
        self.element("rect", &place, attributes);
    }

    /// Adds straight lines through `points`.
    pub fn polyline(&mut self, points: impl IntoIterator<Item = (f64, f64)>, attributes: &str) {
        let points: Vec<String> = points.into_iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.element("polyline", &format!("points=\"{}\" fill=\"none\"", points.join(" ")), attributes);
    }

    /// Adds a line of text. The point is its start or its anchor.
    pub fn text(&mut self, x: f64, y: f64, attributes: &str, words: &str) {
        let space = if attributes.is_empty() { "" } else { " " };
        let words = words.replace('&', "&amp;").replace('<', "&lt;");
        _ = writeln!(self.0, "<text x=\"{x:.1}\" y=\"{y:.1}\"{space}{attributes}>{words}</text>");
    }

    fn element(&mut self, name: &str, place: &str, attributes: &str) {
        let space = if attributes.is_empty() { "" } else { " " };
        _ = writeln!(self.0, "<{name} {place}{space}{attributes}/>");
    }

    /// Returns the drawing as text.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_escaped_and_every_element_is_closed() {
        let mut svg = Svg::new("class=\"a\"");
        svg.text(1.0, 2.0, "class=\"b\"", "</svg><script>&");
        svg.polyline([(0.0, 0.25), (1.0, 2.0)], "");
        let drawn = svg.finish();
        assert_eq!(drawn.matches("</svg>").count(), 1);
        assert!(drawn.contains(">&lt;/svg>&lt;script>&amp;</text>"), "{drawn}");
        assert!(drawn.contains("<polyline points=\"0.0,0.2 1.0,2.0\" fill=\"none\"/>"), "{drawn}");
    }
}
