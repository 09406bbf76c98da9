//! The time to live of entries: as an argument, and in words.

use std::time::{Duration, SystemTime};

use sievedb::{Keyspace, Refresh, TimeSource};

use crate::failure::Result;
use crate::store::note;
use crate::units;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) ttl: Option<Duration>,
    pub(crate) buckets: Option<u64>,
    pub(crate) refresh: Option<Refresh>,
}

impl Window {
    pub(crate) fn set(self, keyspace: &Keyspace) -> Result<()> {
        let Some(ttl) = self.ttl else { return Ok(()) };
        let before = keyspace.options();
        let mut after = before.clone().ttl(ttl);
        if let Some(buckets) = self.buckets {
            after = after.ttl_buckets(buckets);
        }
        if let Some(refresh) = self.refresh {
            after = after.refresh(refresh);
        }
        if after != before {
            keyspace.set_options(after)?;
            if !keyspace.is_empty()? {
                note(&format!(
                    "the entries that {} has already now expire after {}",
                    keyspace.name(),
                    length(ttl)
                ));
            }
        }
        Ok(())
    }
}

/// The argument of `--ttl`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    const WANTED: &str = "a time: a number with s, m, h or d";
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let seconds = match &text[end..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(WANTED.into()),
    };
    let number: u64 = text[..end].parse().map_err(|_| WANTED)?;
    let time = number.checked_mul(seconds).map(Duration::from_secs).ok_or("more than 10 years")?;
    match time.as_secs() {
        0 => Err("less than a second".into()),
        1..=315_576_000 => Ok(time),
        _ => Err("more than 10 years".into()),
    }
}

pub(crate) fn length(time: Duration) -> String {
    let millis = time.as_millis();
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
    match units.into_iter().find(|(_, unit)| millis.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", millis / unit),
        None => format!("{millis}ms"),
    }
}

pub(crate) fn moment(millis: Option<u64>, source: TimeSource) -> String {
    match millis {
        None => "-".into(),
        Some(millis) if source == TimeSource::System => {
            let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis));
            time.map_or_else(|| millis.to_string(), units::utc)
        }
        Some(millis) => millis.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_what_is_no_time_is_refused() {
        let seconds = ["1s", "90s", "5m", "24h", "3652d"].map(|text| time(text).unwrap().as_secs());
        assert_eq!(seconds, [1, 90, 300, 86_400, 3652 * 86_400]);
        for bad in ["", "5", "h", "0s", "1.5h", "-1s", "1 h", "3653d", "99999999999999999999h", "1H"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lengths_and_moments_are_printed_as_people_write_them() {
        let lengths = [86_400_000, 5_400_000, 90_000, 1500].map(|ms| length(Duration::from_millis(ms)));
        assert_eq!(lengths, ["1d", "90m", "90s", "1500ms"]);
        assert_eq!(moment(Some(1_700_000_000_000), TimeSource::System), "2023-11-14T22:13:20Z");
        assert_eq!(moment(Some(17), TimeSource::Caller), "17");
        assert_eq!(moment(None, TimeSource::System), "-");
    }
}
