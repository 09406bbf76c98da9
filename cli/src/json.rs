//! Results as JSON, one object a line. Keys and values that are not UTF-8 are base64 (RFC 4648, padded) under their name and
//! `_base64`: `{"key":"a"}`, `{"key_base64":"/w=="}`.

use std::io::{self, Write};

use serde_json::{Map, Value};

pub(crate) type Object = Map<String, Value>;

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Format {
    /// Print JSON, one object a line. Bytes that are not UTF-8 are base64 under NAME_base64.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn put_bytes(object: &mut Object, name: &str, bytes: &[u8]) {
    match str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), base64(bytes).into()),
    };
}

pub(crate) fn entry(key: &[u8], value: Option<&[u8]>) -> Object {
    let mut object = Object::new();
    put_bytes(&mut object, "key", key);
    match value {
        Some(value) => put_bytes(&mut object, "value", value),
        None => drop(object.insert("value".into(), Value::Null)),
    }
    object
}

pub(crate) fn placed_entry(keyspace: &str, key: &[u8], value: &[u8]) -> Object {
    let mut object = entry(key, Some(value));
    object.insert("keyspace".into(), keyspace.into());
    object
}

pub(crate) fn read_object(line: &[u8]) -> Result<Object, String> {
    let parsed: Value = serde_json::from_slice(line).map_err(|error| format!("this is no JSON: {error}"))?;
    let Value::Object(object) = parsed else { return Err("this is no JSON object".into()) };
    Ok(object)
}

pub(crate) fn take_keyspace(object: &mut Object) -> Result<String, String> {
    match object.remove("keyspace") {
        Some(Value::String(name)) => Ok(name),
        _ => Err("the object has no keyspace".into()),
    }
}

pub(crate) fn entry_of(mut object: Object) -> Result<(Vec<u8>, Vec<u8>), String> {
    let key = take_bytes(&mut object, "key")?.ok_or("the object has no key")?;
    let value = take_bytes(&mut object, "value")?.ok_or("the object has no value")?;
    match object.keys().next() {
        Some(other) => Err(format!("the object has {other:?} besides a key and a value")),
        None => Ok((key, value)),
    }
}

/// Whether a command printed this line.
pub(crate) fn is_result(line: &[u8]) -> bool {
    const BESIDE_KEY: [&str; 5] = ["value", "value_base64", "present", "side", "event"];
    const PLACE: &str = "keyspace";
    if !line.starts_with(b"{\"") || !line.ends_with(b"}") {
        return false;
    }
    let Ok(Value::Object(object)) = serde_json::from_slice(line) else { return false };
    let has_key = ["key", "key_base64"].iter().any(|name| object.get(*name).is_some_and(Value::is_string));
    let beside = BESIDE_KEY.iter().filter(|name| object.contains_key(**name)).count();
    let placed = usize::from(object.contains_key(PLACE));
    has_key
        && (object.len() == 2 + placed && beside == 1
            || object.get("event").is_some_and(|event| event == "entry"))
}

fn take_bytes(object: &mut Object, name: &str) -> Result<Option<Vec<u8>>, String> {
    let as_base64 = format!("{name}_base64");
    match (object.remove(name), object.remove(&as_base64)) {
        (None | Some(Value::Null), None) => Ok(None),
        (Some(Value::String(text)), None) => Ok(Some(text.into_bytes())),
        (None, Some(Value::String(text))) => {
            from_base64(text.as_bytes()).map(Some).ok_or(format!("{as_base64} is not base64"))
        }
        _ => Err(format!("the {name} is not one text")),
    }
}

fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (groups, []) = text.as_chunks::<4>() else { return None };
    for (index, group) in groups.iter().enumerate() {
        let is_last = index + 1 == groups.len();
        let padding = group.iter().rev().take_while(|&&digit| digit == b'=').count();
        if padding > 2 || (padding > 0 && !is_last) {
            return None;
        }
        let digits = group[..4 - padding].iter().try_fold(0, |bits, digit| {
            let value = DIGITS.iter().position(|known| known == digit)?;
            Some(bits << 6 | value as u32)
        })?;
        let digits = digits << (6 * padding);
        let group = [(digits >> 16) as u8, (digits >> 8) as u8, digits as u8];
        let (given, rest) = group.split_at(3 - padding);
        if rest.iter().any(|&byte| byte != 0) {
            return None;
        }
        bytes.extend_from_slice(given);
    }
    Some(bytes)
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes [`entry`] in pieces.
pub(crate) fn write_entry(key: &[u8], value: &[u8], to: &mut impl Write) -> io::Result<()> {
    for (before, name, bytes) in [("{", "key", key), (",", "value", value)] {
        match str::from_utf8(bytes) {
            Ok(text) => {
                write!(to, "{before}\"{name}\":")?;
                serde_json::to_writer(&mut *to, text)?;
            }
            Err(_) => {
                write!(to, "{before}\"{name}_base64\":\"")?;
                // Groups of three bytes: only the last piece is padded.
                bytes.chunks(3 << 14).try_for_each(|piece| to.write_all(base64(piece).as_bytes()))?;
                to.write_all(b"\"")?;
            }
        }
    }
    to.write_all(b"}\n")
}

fn base64(bytes: &[u8]) -> String {
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

    fn read_entry(line: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
        entry_of(read_object(line)?)
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        // RFC 4648, section 10.
        let vectors = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (len, expected) in vectors.into_iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..len]), expected);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
        let all: Vec<u8> = (0..=255).collect();
        for len in 0..all.len() {
            assert_eq!(from_base64(base64(&all[..len]).as_bytes()).unwrap(), &all[..len]);
        }
        for wrong in ["Zg=", "Zg", "Z===", "====", "Zh==", "Zm9=", "Zg==Zg==", "Zm9v\n", "Zm-v"] {
            assert_eq!(from_base64(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_printed_and_nothing_else_is() {
        for (key, value) in
            [(&b"a\t\"\\\xc3\xbc"[..], &b""[..]), (b"\xff", b"\0"), (b"", b"\xfe\xfd\xfc\xfb")]
        {
            let line = Value::Object(entry(key, Some(value))).to_string();
            assert_eq!(read_entry(line.as_bytes()).unwrap(), (key.to_vec(), value.to_vec()));
            assert!(is_result(line.as_bytes()), "{line}");
        }
        for wrong in [
            "",
            "k",
            "[]",
            "{}",
            r#"{"key":"a"}"#,
            r#"{"key":"a","value":null}"#,
            r#"{"key":1,"value":"b"}"#,
            r#"{"key":"a","key_base64":"YQ==","value":"b"}"#,
            r#"{"key_base64":"YQ","value":"b"}"#,
            r#"{"key":"a","value":"b","more":1}"#,
            r#"{"key":"a","value":"b"} "x""#,
        ] {
            assert!(read_entry(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_an_object_of_the_shape_of_a_result_is_taken_for_one() {
        for (line, is) in [
            (r#"{"key":"a","value":null}"#, true),
            (r#"{"key":"a","present":true}"#, true),
            (r#"{"key_base64":"/w==","side":"first"}"#, true),
            (r#"{"delete":false,"event":"entry","key":"a","offset":0}"#, true),
            (r#"{"key":"a"}"#, false),
            (r#"{"key":1,"value":"b"}"#, false),
            (r#"{"key":"a","value":"b","time":3}"#, false),
            (r#"{"id":"a","value":"b"}"#, false),
            (r#"["key","value"]"#, false),
        ] {
            assert_eq!(is_result(line.as_bytes()), is, "{line}");
        }
    }

    #[test]
    fn an_entry_is_written_as_its_object_is_printed() {
        let long: Vec<u8> = (0..200_000u32).map(|n| (n * 7 / 8) as u8).collect();
        let text = "ü\"\n".repeat(50_000);
        for key in [&b""[..], b"k\t", b"\xff"] {
            for value in [&b""[..], &long, text.as_bytes(), &long[..199_999], &long[..199_998]] {
                let mut written = Vec::new();
                write_entry(key, value, &mut written).unwrap();
                assert!(written == format!("{}\n", Value::Object(entry(key, Some(value)))).as_bytes());
            }
        }
    }

    #[test]
    fn text_is_printed_as_text_and_other_bytes_as_base64() {
        let line = |key, value| Value::Object(entry(key, value)).to_string();
        assert_eq!(line("a\t\"ü".as_bytes(), Some(b"")), r#"{"key":"a\t\"ü","value":""}"#);
        assert_eq!(line(b"\xff", Some(b"\0")), r#"{"key_base64":"/w==","value":"\u0000"}"#);
        assert_eq!(line(b"k", None), r#"{"key":"k","value":null}"#);
    }
}
