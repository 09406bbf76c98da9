//! The parts of spans in a range.

use std::sync::Arc;

use super::builder::SpansBuilder;
use super::list::Spans;

impl Spans {
    pub(crate) fn cut(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Self {
        let mut cut = SpansBuilder::default();
        for span in self.overlapping(start.unwrap_or_default(), end) {
            let starts_before = start.filter(|start| **span.start < **start).map(Arc::from);
            let ends_after = end.filter(|end| span.end.is_none_or(|own| **own > **end)).map(Arc::from);
            let first = starts_before.as_ref().unwrap_or(span.start);
            cut.push(first, ends_after.as_ref().or(span.end), span.seqnos);
        }
        cut.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Span;
    use super::super::list::tests::sample;
    use super::*;

    #[test]
    fn spans_are_cut_to_a_range() {
        let spans = sample();
        let show = |spans: &Spans| -> Vec<String> {
            let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
            let end = |span: Span<'_>| span.end.map_or(String::new(), |end| text(end));
            spans
                .iter()
                .map(|span| format!("{}..{} {:?}", text(span.start), end(span), span.seqnos))
                .collect()
        };
        let cut = |start: Option<&str>, end: Option<&str>| {
            show(&spans.cut(start.map(str::as_bytes), end.map(str::as_bytes)))
        };
        assert_eq!(cut(None, None), ["b..d [9, 4]", "d..f [4]", "h.. [7]"]);
        assert_eq!(cut(Some("c"), Some("e")), ["c..d [9, 4]", "d..e [4]"]);
        assert_eq!(cut(Some("d"), Some("h")), ["d..f [4]"]);
        assert_eq!(cut(Some("f"), Some("h")), [""; 0]);
        assert_eq!(cut(Some("f"), Some("h\0")), ["h..h\0 [7]"]);
        assert_eq!(cut(Some("x"), None), ["x.. [7]"]);
        assert_eq!(cut(None, Some("b")), [""; 0]);
        assert_eq!(cut(None, Some("")), [""; 0]);
    }
}
