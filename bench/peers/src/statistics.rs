#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*samples.first()?, *samples.last()?);
        let (low, high) = ((samples.len() - 1) / 2, samples.len() / 2);
        Some(Self { min, median: f64::midpoint(samples[low], samples[high]), max })
    }
}

/// Ratios within rounds vary less than the ratio of two medians.
pub(crate) fn ratios(of: &[f64], over: &[f64]) -> Option<Spread> {
    Spread::of(of.iter().zip(over).map(|(of, over)| of / over))
}

/// Seconds per operation without the loop's cost; `None` if the loop costs as much.
pub(crate) fn net(seconds: f64, of_loop: f64) -> Option<f64> {
    (seconds > of_loop).then_some(seconds - of_loop)
}

pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => "–".into(),
        999_500.0.. => format!("{} M", digits(value / 1e6)),
        9_995.0.. => format!("{} k", digits(value / 1e3)),
        _ => digits(value),
    }
}

pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        ..0.000_95 => format!("{value:.5}"),
        ..0.095 => format!("{value:.4}"),
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => thousands(value.round() as i64),
    }
}

pub(crate) fn thousands(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::from(if number < 0 { "-" } else { "" });
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { min: 1.0, median: 2.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_ratio_is_taken_within_each_round() {
        assert_eq!(ratios(&[3.0, 30.0], &[2.0, 20.0]), Spread::of([1.5]));
        assert_eq!(ratios(&[], &[1.0]), None);
    }

    #[test]
    fn the_loop_is_taken_off_unless_nothing_is_left() {
        assert_eq!(net(5.0, 2.0), Some(3.0));
        assert_eq!(net(2.0, 2.0), None);
    }

    #[test]
    fn figures_have_about_three_digits() {
        assert_eq!(
            [0.0, 0.001, 1.234, 56.78, 1234.0, 12_345.0, 2_110_000.0, f64::NAN].map(short),
            ["0", "0.0010", "1.23", "56.8", "1,234", "12.3 k", "2.11 M", "–"]
        );
        assert_eq!(thousands(-1_234_567), "-1,234,567");
    }
}
