//! Results for programs: one JSON object a line.
//!
//! JSON has text and no bytes. A key or a value that is valid UTF-8 is text under its own name; any other is
//! base64 (RFC 4648, with padding) under that name and `_base64`. So `{"key":"a"}` is the byte 61, and
//! `{"key_base64":"/w=="}` the byte ff: the two cannot be confused.

use serde_json::{Map, Value};

/// A JSON object.
pub(crate) type Object = Map<String, Value>;

/// How results are printed.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Format {
    /// Print JSON, one object a line. Bytes that are not UTF-8 are base64 under NAME_base64.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Adds bytes to an object.
pub(crate) fn put_bytes(object: &mut Object, name: &str, bytes: &[u8]) {
    match str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), base64(bytes).into()),
    };
}

/// An entry, or a key without a value: then `value` is null.
pub(crate) fn entry(key: &[u8], value: Option<&[u8]>) -> Object {
    let mut object = Object::new();
    put_bytes(&mut object, "key", key);
    match value {
        Some(value) => put_bytes(&mut object, "value", value),
        None => drop(object.insert("value".into(), Value::Null)),
    }
    object
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | usize::from(group.get(at).copied().unwrap_or(0)));
        for index in 0..4 {
            let digit = DIGITS[bits >> (18 - 6 * index) & 63];
            out.push(if index <= group.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        // RFC 4648, section 10.
        let vectors = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (len, expected) in vectors.into_iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..len]), expected);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn text_is_printed_as_text_and_other_bytes_as_base64() {
        let line = |key, value| Value::Object(entry(key, value)).to_string();
        assert_eq!(line("a\t\"ü".as_bytes(), Some(b"")), r#"{"key":"a\t\"ü","value":""}"#);
        assert_eq!(line(b"\xff", Some(b"\0")), r#"{"key_base64":"/w==","value":"\u0000"}"#);
        assert_eq!(line(b"k", None), r#"{"key":"k","value":null}"#);
    }
}
