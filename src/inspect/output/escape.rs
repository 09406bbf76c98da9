/// Returns bytes as text on one line. Tab, newline and backslash become `\t`, `\n`, `\\`. Other control and invisible
/// characters, and invalid bytes, become `\xHH` per byte. Injective, O(n).
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\t' => out.push_str("\\t"),
                '\n' => out.push_str("\\n"),
                '\\' => out.push_str("\\\\"),
                _ if is_control(char) => push_hex(char.encode_utf8(&mut [0; 4]).as_bytes(), &mut out),
                _ => out.push(char),
            }
        }
        push_hex(chunk.invalid(), &mut out);
    }
    out
}

fn push_hex(bytes: &[u8], out: &mut String) {
    bytes.iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
}

/// Whether it is a control character, a separator, the byte order mark, or a change of the writing direction.
fn is_control(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

pub(in crate::inspect) fn short(key: &[u8]) -> String {
    const SHORT_BYTES: usize = 24;
    if key.len() <= SHORT_BYTES {
        return format!("\"{}\"", escape(key));
    }
    let (first, last) = (&key[..SHORT_BYTES / 2], &key[key.len() - SHORT_BYTES / 2..]);
    format!("\"{}\"...\"{}\"", escape(first), escape(last))
}
