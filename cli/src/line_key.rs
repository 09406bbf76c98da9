//! The key of a line: the whole line, a field, or the match of a regular expression.

use regex::bytes::Regex;

use crate::escape::excerpt;
use crate::failure::{Failure, Result};

#[derive(Debug, Clone)]
pub(crate) enum LineKey {
    Field(usize),
    /// The first group of the first match, or the match itself.
    Match(Regex),
}

impl LineKey {
    pub(crate) fn parse(argument: &str) -> Result<Self, String> {
        if argument.is_empty() {
            return Err("a key is the number of a field or a regular expression".into());
        }
        if argument.bytes().all(|byte| byte.is_ascii_digit()) {
            return match argument.parse() {
                Ok(number) if number > 0 => Ok(Self::Field(number)),
                _ => Err("fields are numbered from 1".into()),
            };
        }
        Regex::new(argument).map(Self::Match).map_err(|error| error.to_string())
    }

    pub(crate) fn of<'a>(rule: Option<&Self>, line: &'a [u8]) -> Result<&'a [u8]> {
        match rule {
            None => Ok(line),
            Some(Self::Field(number)) => field(line, *number)
                .ok_or_else(|| Failure::Usage(format!("{} has no field {number}", excerpt(line)))),
            Some(Self::Match(regex)) => first_match(regex, line).ok_or_else(|| {
                Failure::Usage(format!("{} does not match {}", excerpt(line), regex.as_str()))
            }),
        }
    }
}

fn field(line: &[u8], number: usize) -> Option<&[u8]> {
    line.split(|&byte| byte == b' ' || byte == b'\t').filter(|field| !field.is_empty()).nth(number - 1)
}

fn first_match<'a>(regex: &Regex, line: &'a [u8]) -> Option<&'a [u8]> {
    if regex.captures_len() == 1 {
        return regex.find(line).map(|found| found.as_bytes());
    }
    regex.captures(line)?.get(1).map(|group| group.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key<'a>(rule: &str, line: &'a str) -> Option<&'a str> {
        let rule = LineKey::parse(rule).unwrap();
        let key = LineKey::of(Some(&rule), line.as_bytes());
        key.ok().map(|key| std::str::from_utf8(key).unwrap())
    }

    #[test]
    fn a_field_stands_between_runs_of_spaces_and_tabs() {
        let line = "  GET \t/index.html   200";
        assert_eq!([key("1", line), key("3", line), key("4", line)], [Some("GET"), Some("200"), None]);
        assert_eq!((key("1", ""), key("1", " \t"), key("01", "a")), (None, None, Some("a")));
    }

    #[test]
    fn an_expression_finds_its_first_group_or_its_first_match() {
        let line = "id=17 user=ada id=18";
        assert_eq!(key("id=[0-9]+", line), Some("id=17"));
        assert_eq!(key("user=(\\w+)", line), Some("ada"));
        assert_eq!((key("none", line), key("(x)?id", line)), (None, None));
        assert_eq!(key("^", line), Some(""));
        let rule = LineKey::parse("(?-u)\\xff.").unwrap();
        assert_eq!(LineKey::of(Some(&rule), b"a\xff\xfe").unwrap(), b"\xff\xfe");
    }

    #[test]
    fn what_is_neither_a_field_nor_an_expression_is_refused() {
        assert!(
            ["", "0", "(", "[a", "99999999999999999999999"]
                .into_iter()
                .all(|bad| LineKey::parse(bad).is_err())
        );
        assert_eq!(LineKey::of(None, b" a b ").unwrap(), b" a b ");
    }
}
