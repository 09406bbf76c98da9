//! Numbers, keys and times for people.

use std::time::{SystemTime, UNIX_EPOCH};

use sievedb::inspect::escape;

/// `1234567` as `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 key`, `2 keys`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// A number of bytes with about three digits: `812 B`, `9.77 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = match value {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// A number from 0 on with three significant digits, without an exponent down to a billionth.
pub(crate) fn significant(number: f64) -> String {
    if number == 0.0 {
        return "0".into();
    }
    let decimals = (2.0 - number.abs().log10().floor()).clamp(0.0, 11.0) as usize;
    format!("{number:.decimals$}")
}

/// A share of one as a percentage with three significant digits.
pub(crate) fn share(share: f64) -> String {
    format!("{} %", significant(100.0 * share))
}

/// A key of at most 40 characters and 64 bytes: escaped, and without its middle if it is longer.
pub(crate) fn key(key: &[u8]) -> String {
    const CHARACTERS: usize = 40;
    const BYTES: usize = 64;
    // An end of the key that has at least as many characters as are shown.
    let piece = key.len().min(2 * BYTES);
    let first = escape(&key[..piece]);
    if key.len() == piece && first.chars().count() <= CHARACTERS && first.len() <= BYTES {
        return first;
    }
    let fitting = |characters: &mut dyn Iterator<Item = char>| -> Vec<char> {
        let mut bytes = 0;
        let fits = |character: &char| {
            bytes += character.len_utf8();
            bytes <= BYTES / 2 - 2
        };
        characters.take(CHARACTERS / 2 - 1).take_while(fits).collect()
    };
    let last = escape(&key[key.len() - piece..]);
    let mut last = fitting(&mut last.chars().rev());
    last.reverse();
    let first = fitting(&mut first.chars());
    first.into_iter().chain(['…']).chain(last).collect()
}

/// A moment as `2026-11-26 00:41 UTC`.
pub(crate) fn moment(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, minutes) = (seconds / 86_400, seconds / 60 % 1440);
    let (year, month, day) = date(days);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

/// Year, month and day of a day that is counted from 1970 on, by Hinnant's algorithm `civil_from_days`.
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (month, day) = (if month < 10 { month + 3 } else { month - 9 }, day - (153 * month + 2) / 5 + 1);
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn numbers_are_grouped_and_rounded() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0, 1023, 1024, 10_240, 1023 << 20].map(bytes),
            ["0 B", "1023 B", "1.00 KiB", "10.0 KiB", "1.00 GiB"]
        );
        assert_eq!([0.0, 0.001_234, 1.0, 12_345.6].map(significant), ["0", "0.00123", "1.00", "12346"]);
        assert_eq!(share(0.0101), "1.01 %");
    }

    #[test]
    fn a_long_key_keeps_its_beginning_and_its_end() {
        assert_eq!(key(b"/usr/bin/env"), "/usr/bin/env");
        assert_eq!(key(b"<a>\n"), "<a>\\n");
        for long in [vec![b'k'; 1024], vec![0xff; 1024], "\u{1d11e}".repeat(90).into_bytes()] {
            let shown = key(&long);
            assert!(shown.chars().count() <= 40 && shown.len() <= 64 && shown.contains('…'), "{shown}");
        }
    }

    #[test]
    fn a_moment_is_a_date_of_the_calendar() {
        let after = |seconds| moment(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(after(0), "1970-01-01 00:00 UTC");
        assert_eq!(after(951_827_696), "2000-02-29 12:34 UTC");
        assert_eq!(after(1_798_761_599), "2026-12-31 23:59 UTC");
    }
}
