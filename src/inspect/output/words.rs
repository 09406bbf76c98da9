//! Numbers as text.

pub(in crate::inspect) fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

pub(in crate::inspect) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Exact up to five digits, then with a unit: `9.77 MiB`.
pub(in crate::inspect) fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if number < 100_000 {
        return format!("{} B", count(number));
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// Three significant digits.
pub(in crate::inspect) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent == 0.0 {
        return "0 %".into();
    }
    let decimals = (2 - percent.abs().log10().floor() as i32).clamp(0, 9) as usize;
    format!("{percent:.decimals$} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_shares_keep_three_digits() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0, 99_999, 100_000, 1 << 20, u64::MAX].map(bytes),
            ["0 B", "99,999 B", "97.7 KiB", "1.00 MiB", "16384 PiB"]
        );
        assert_eq!(
            [0.0, 1.0, 0.5, 0.008_612, 0.000_001].map(percent),
            ["0 %", "100 %", "50.0 %", "0.861 %", "0.000100 %"]
        );
    }
}
