//! Competitors measured in rounds. Each round starts with another competitor, so that disturbances affect all of them.
//! A figure is the median of the rounds; a ratio is the median of the ratios within rounds. A warm-up round comes
//! first.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_unstable_by(f64::total_cmp);
        let (low, high) = ((samples.len() - 1) / 2, samples.len() / 2);
        Self {
            min: samples[0],
            median: f64::midpoint(samples[low], samples[high]),
            max: samples[samples.len() - 1],
        }
    }
}

impl Spread {
    pub(crate) fn relative(self) -> f64 {
        (self.max - self.min) / self.median
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}–{})", digits(self.median), digits(self.min), digits(self.max))
    }
}

pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[derive(Debug)]
pub(crate) struct Rounds {
    rounds: Vec<Vec<f64>>,
}

impl Rounds {
    pub(crate) fn run(count: usize, competitors: usize, mut sample: impl FnMut(usize) -> f64) -> Self {
        if count > 1 {
            (0..competitors).for_each(|competitor| _ = sample(competitor));
        }
        let rounds = (0..count.max(1))
            .map(|round| {
                let mut samples = vec![0.0; competitors];
                for turn in 0..competitors {
                    let competitor = (round + turn) % competitors;
                    samples[competitor] = sample(competitor);
                }
                samples
            })
            .collect();
        Self { rounds }
    }

    pub(crate) fn of(&self, competitor: usize) -> Spread {
        Spread::of(self.rounds.iter().map(|samples| samples[competitor]))
    }

    pub(crate) fn ratio(&self, competitor: usize, over: usize) -> Spread {
        Spread::of(self.rounds.iter().map(|samples| samples[competitor] / samples[over]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { min: 1.0, median: 2.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Spread::of([7.0]), Spread { min: 7.0, median: 7.0, max: 7.0 });
    }

    #[test]
    fn every_competitor_begins_a_round_and_the_first_samples_are_not_counted() {
        let mut order = Vec::new();
        let rounds = Rounds::run(3, 3, |competitor| {
            order.push(competitor);
            order.len() as f64
        });
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 1, 2, 0, 2, 0, 1]);
        assert_eq!(rounds.of(0), Spread { min: 4.0, median: 9.0, max: 11.0 });
    }

    #[test]
    fn a_ratio_is_taken_within_each_round() {
        let mut slow = [1.0, 1.0, 1.0, 1.0, 10.0, 10.0].into_iter();
        let rounds =
            Rounds::run(2, 2, |competitor| slow.next().unwrap() * if competitor == 0 { 3.0 } else { 2.0 });
        assert_eq!(rounds.ratio(0, 1), Spread { min: 1.5, median: 1.5, max: 1.5 });
    }

    #[test]
    fn figures_have_about_three_digits() {
        assert_eq!(
            [0.0, 0.004, 1.234, 9.999, 56.78, 1234.5].map(digits),
            ["0", "0.00", "1.23", "10.0", "56.8", "1234"]
        );
    }
}
