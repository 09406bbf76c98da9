//! Numbers, keys and times as text.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use indicatif::{BinaryBytes, HumanCount};
use sievedb::inspect::escape;

/// Formats a number: `1234567` as `1,234,567`.
#[must_use]
pub fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// Formats a number with its noun: `1 key`, `2 keys`.
#[must_use]
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Formats a size: `812 B`, `9.77 MiB`.
#[must_use]
pub fn bytes(number: u64) -> String {
    BinaryBytes(number).to_string()
}

/// Formats a number with three significant digits, without an exponent down to a billionth. `number` is not negative.
#[must_use]
pub fn significant(number: f64) -> String {
    if number == 0.0 {
        return "0".into();
    }
    let decimals = (2.0 - number.abs().log10().floor()).clamp(0.0, 11.0) as usize;
    format!("{number:.decimals$}")
}

/// Formats a fraction as a percentage with three significant digits.
#[must_use]
pub fn share(share: f64) -> String {
    format!("{} %", significant(100.0 * share))
}

/// Formats a fraction as a percentage. Only 1 is 100 %, and only 0 is 0 %.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    for decimals in 2..7 {
        let text = format!("{percent:.decimals$}");
        let shown: f64 = text.parse().unwrap_or(percent);
        if (shown != 100.0 || share >= 1.0) && (shown != 0.0 || share <= 0.0) {
            return format!("{text} %");
        }
    }
    format!("{percent:.2e} %")
}

/// Formats a rate with about three digits.
#[must_use]
pub fn per_second(number: u64, time: Duration) -> String {
    let rate = number as f64 / time.as_secs_f64().max(1e-9);
    let digits = (rate.max(1.0).log10().floor() as i32 - 2).max(0);
    let unit = 10f64.powi(digits);
    count(((rate / unit).round() * unit) as u64)
}

/// Formats a duration in seconds with about three digits.
#[must_use]
pub fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let decimals = match seconds {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{seconds:.decimals$} s")
}

/// Formats a time: `2024-02-29T12:34:56Z`.
#[must_use]
pub fn utc(time: SystemTime) -> String {
    let seconds = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_secs() as i64,
        Err(before) => -(before.duration().as_secs_f64().ceil() as i64),
    };
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

pub(crate) fn moment(time: SystemTime) -> String {
    let utc = utc(time);
    let minutes = utc.rsplit_once(':').map_or(&*utc, |(minutes, _)| minutes);
    format!("{} UTC", minutes.replace('T', " "))
}

/// Returns year, month and day of days since 1970-01-01 (Hinnant, "chrono-Compatible Low-Level Date Algorithms",
/// `civil_from_days`). Years begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// Formats a key with at most 40 characters and 64 bytes: escaped, with the middle omitted.
pub(crate) fn key(key: &[u8]) -> String {
    const CHARACTERS: usize = 40;
    const BYTES: usize = 64;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_827_696, "2000-02-29T12:34:56Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
        assert_eq!(utc(UNIX_EPOCH - Duration::from_secs(1)), "1969-12-31T23:59:59Z");
        assert_eq!(moment(UNIX_EPOCH + Duration::from_secs(951_827_696)), "2000-02-29 12:34 UTC");
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
    fn numbers_are_grouped_and_rounded() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(counted(1, "key", "keys") + &counted(2, "key", "keys"), "1 key2 keys");
        assert_eq!(
            [0, 1023, 1024, 10_240, 1 << 20, 1023 << 20, u64::MAX].map(bytes),
            ["0 B", "1023 B", "1.00 KiB", "10.00 KiB", "1.00 MiB", "1023.00 MiB", "16.00 EiB"]
        );
        assert_eq!([0.0, 0.001_234, 1.0, 12_345.6].map(significant), ["0", "0.00123", "1.00", "12346"]);
        assert_eq!([0.0, 0.0101].map(share), ["0 %", "1.01 %"]);
        assert_eq!(per_second(1_234_567, Duration::from_secs(1)), "1,230,000");
        assert_eq!(per_second(5, Duration::ZERO), "5,000,000,000");
        assert_eq!(seconds(Duration::from_millis(1234)), "1.23 s");
    }

    #[test]
    fn only_one_is_shown_as_100_percent_and_only_zero_as_0() {
        assert_eq!(
            [0.0, 1.0, 0.5, 0.999_999_9, 0.000_000_1].map(percent)[..3],
            ["0.00 %", "100.00 %", "50.00 %"]
        );
        assert_eq!(percent(0.999_999), "99.9999 %");
        assert_eq!(percent(0.000_002), "0.0002 %");
    }
}
