//! The boundaries and the horizon of a keyspace.

use super::options::Expiry;
use crate::key::SeqNo;
use crate::wal::Boundary;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Buckets {
    /// In ascending order, from the last boundary at or below the horizon.
    boundaries: Vec<Boundary>,
    horizon: SeqNo,
}

/// Entries written before the caller set a time have an unknown age.
const NO_TIME: u64 = 0;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) boundaries: Vec<Boundary>,
    pub(crate) first: SeqNo,
}

impl Buckets {
    pub(crate) fn boundaries(&self) -> &[Boundary] {
        &self.boundaries
    }

    pub(crate) fn last(&self) -> Option<Boundary> {
        self.boundaries.last().copied()
    }

    pub(crate) fn horizon(&self) -> SeqNo {
        self.horizon
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.boundaries.capacity() * size_of::<Boundary>()
    }

    /// # Errors
    ///
    /// Returns the reason why the boundary cannot follow the last one.
    pub(crate) fn begin(&mut self, boundary: Boundary) -> Result<(), String> {
        match self.last() {
            Some(last) if boundary.seqno <= last.seqno || boundary.time < last.time => {
                Err(format!("{boundary:?} does not follow {last:?}"))
            }
            _ => {
                self.boundaries.push(boundary);
                Ok(())
            }
        }
    }

    /// Adds a boundary of a log, unless it is known or hidden.
    pub(crate) fn follow(&mut self, boundary: Boundary) {
        if self.begin(boundary).is_ok() {
            self.raise(self.horizon);
        }
    }

    /// Returns the boundary to add for a change of options. `now` is `None` until the caller sets a time; `next` is the
    /// next sequence number.
    ///
    /// If entries did not expire before, existing ones count as written now, or when the caller sets the time. Otherwise
    /// the last bucket ends now if `ttl`, `buckets` or the clock changes, except during an unconfirmed leap
    /// (`is_doubtful`).
    ///
    /// # Errors
    ///
    /// The existing boundaries have times of another clock.
    pub(crate) fn change(
        &self,
        before: Option<Expiry>,
        after: Option<Expiry>,
        now: Option<u64>,
        is_doubtful: bool,
        next: SeqNo,
    ) -> Result<Option<Boundary>, &'static str> {
        let Some(after) = after else { return Ok(None) };
        if before.is_some_and(|before| before.time_source != after.time_source) && self.last_dated().is_some()
        {
            return Err("time_source cannot be changed while entries expire");
        }
        let length = |expiry: &Expiry| (expiry.ttl, expiry.buckets);
        let is_same = before.is_some_and(|before| {
            length(&before) == length(&after) && before.time_source == after.time_source
        });
        let boundary = Boundary { time: now.unwrap_or(NO_TIME), seqno: self.number_after(next) };
        let is_leap = before.is_some_and(|before| is_doubtful && self.is_leap(&before, boundary.time));
        let follows = self.last().is_none_or(|last| last.seqno < next && last.time <= boundary.time);
        Ok((!is_same && !is_leap && follows).then_some(boundary))
    }

    /// Raises the horizon, and drops the boundaries of hidden buckets.
    pub(crate) fn raise(&mut self, seqno: SeqNo) {
        self.horizon = self.horizon.max(seqno);
        let below = self.boundaries.partition_point(|boundary| boundary.seqno < self.horizon);
        self.boundaries.drain(..below.saturating_sub(1));
    }

    pub(crate) fn forget_boundaries(&mut self) {
        self.boundaries = Vec::new();
    }

    /// Larger buckets are later; [`Buckets::open`] is the last.
    pub(crate) fn bucket_of(&self, seqno: SeqNo) -> usize {
        self.boundaries.partition_point(|boundary| boundary.seqno <= seqno)
    }

    pub(crate) fn open(&self) -> usize {
        self.boundaries.len()
    }

    /// The end in milliseconds; `None` for the last bucket, and before the caller set a time.
    pub(super) fn end_of(&self, bucket: usize) -> Option<u64> {
        self.boundaries.get(bucket).map(|boundary| boundary.time).filter(|time| *time != NO_TIME)
    }

    /// Whether no entry has a number of the bucket.
    pub(super) fn is_empty(&self, bucket: usize) -> bool {
        let numbers = bucket.checked_sub(1).and_then(|before| self.boundaries.get(before..=bucket));
        numbers.is_some_and(|ends| ends[0].seqno + 1 == ends[1].seqno)
    }

    /// Returns the number of a boundary before entry `next`. It skips a number after a single entry, see the module.
    fn number_after(&self, next: SeqNo) -> SeqNo {
        match self.last() {
            Some(last) if last.seqno + 1 == next => next + 1,
            Some(last) => next.max(last.seqno + 1),
            None => next,
        }
    }

    /// Whether the last bucket is *undated*; see the module.
    pub(crate) fn is_undated(&self) -> bool {
        match &self.boundaries[..] {
            [.., before, last] => before.time == last.time && before.seqno + 1 == last.seqno,
            _ => false,
        }
    }

    pub(crate) fn last_dated(&self) -> Option<Boundary> {
        self.last().filter(|last| last.time != NO_TIME)
    }

    /// Whether the last bucket ended more than one time to live ago: the clock may be wrong.
    pub(crate) fn is_leap(&self, expiry: &Expiry, now: u64) -> bool {
        self.last_dated().is_some_and(|last| expiry.end_of(last.time).saturating_add(expiry.ttl) <= now)
    }

    /// Returns the boundaries before a commit group that begins at number `first`. `is_doubtful`: a leap is not
    /// confirmed.
    pub(crate) fn next(&self, expiry: &Expiry, now: u64, is_doubtful: bool, first: SeqNo) -> Next {
        let at = |time, seqno| Boundary { time, seqno };
        // If the entries after the last boundary were lost, the next entries take their numbers.
        let open = self.last().map_or(first, |last| first.max(last.seqno));
        let first = self.number_after(first);
        let boundaries = match self.last_dated() {
            None => vec![at(now, first)],
            Some(last) if now < last.time => Vec::new(),
            Some(last) if self.is_undated() => match is_doubtful && self.is_leap(expiry, now) {
                true => Vec::new(),
                false => vec![at(now.max(last.time), first)],
            },
            Some(last) => {
                let (end, start) = (expiry.end_of(last.time), expiry.start_of(now));
                if now < end {
                    Vec::new()
                } else if is_doubtful && self.is_leap(expiry, now) {
                    vec![at(end, first), at(end, first + 1)]
                } else if start <= end {
                    vec![at(end, first)]
                } else {
                    vec![at(end, first), at(start, first + 1)]
                }
            }
        };
        let first = boundaries.last().map_or(open, |last| last.seqno);
        Next { boundaries, first }
    }

    /// Returns the number below which all entries have expired. `visible` is the newest number.
    pub(crate) fn due(&self, expiry: &Expiry, now: u64, visible: SeqNo) -> SeqNo {
        let is_due = |boundary: &Boundary| boundary.time.saturating_add(expiry.ttl) <= now;
        let due = self.boundaries.partition_point(is_due);
        let due =
            due.checked_sub(1).map(|at| self.boundaries[at]).filter(|boundary| boundary.time != NO_TIME);
        let due = due.map_or(0, |boundary| boundary.seqno);
        let is_all = self.is_leap(expiry, now) && !self.is_undated();
        // A boundary may precede its entries.
        let due = if is_all { due.max(visible + 1) } else { due.min(visible + 1) };
        due.max(self.horizon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn expiry() -> Expiry {
        Expiry { buckets: 6, ..Expiry::new(60 * MINUTE) }
    }

    /// Entries written one by one, each with its minute, and the boundaries before them.
    #[derive(Default)]
    struct Written {
        buckets: Buckets,
        visible: SeqNo,
        entries: Vec<(SeqNo, u64)>,
    }

    impl Written {
        fn write(&mut self, minute: u64, is_doubtful: bool) {
            let next = self.buckets.next(&expiry(), minute * MINUTE, is_doubtful, self.visible + 1);
            next.boundaries.iter().for_each(|&boundary| self.buckets.begin(boundary).unwrap());
            self.visible = next.first;
            self.entries.push((self.visible, minute));
        }

        /// Returns the minutes of the visible entries.
        fn left_at(&mut self, minute: u64) -> Vec<u64> {
            let horizon = self.buckets.due(&expiry(), minute * MINUTE, self.visible);
            self.buckets.raise(horizon);
            let left = self.entries.iter().filter(|(seqno, _)| *seqno >= self.buckets.horizon());
            left.map(|(_, minute)| *minute).collect()
        }
    }

    #[test]
    fn an_entry_lives_for_its_time_and_less_than_a_bucket_more_whatever_is_written_in_between() {
        for round in 0..300_u64 {
            let mut random = round;
            let mut below = |most: u64| {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                (random >> 33) % most
            };
            let (mut written, mut minute) = (Written::default(), 1000 + below(1000));
            for _ in 0..60 {
                minute += [below(3), below(15), below(150)][below(3) as usize];
                if below(3) > 0 {
                    written.write(minute, false);
                } else {
                    let left = written.left_at(minute);
                    let all = written.entries.iter().map(|(_, minute)| *minute);
                    for at in all {
                        let (age, is_left) = (minute - at, left.contains(&at));
                        assert!(
                            age >= 60 || is_left,
                            "round {round}: {at} at {minute} {written:?}",
                            written = written.buckets
                        );
                        assert!(
                            age < 70 || !is_left,
                            "round {round}: {at} at {minute} {written:?}",
                            written = written.buckets
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_clock_that_is_behind_the_last_boundary_writes_none_and_entries_live_longer() {
        let mut written = Written::default();
        [100, 110, 95, 20].into_iter().for_each(|minute| written.write(minute, false));
        assert_eq!(written.buckets.boundaries().len(), 2);
        assert_eq!(written.left_at(20), [100, 110, 95, 20]);
        assert_eq!(written.left_at(171), [110, 95, 20]);
        assert_eq!(written.left_at(180), [0; 0]);
    }

    #[test]
    fn entries_that_are_written_while_the_time_is_in_doubt_expire_from_the_next_boundary_on() {
        let mut written = Written::default();
        written.write(100, false);
        // After an opening, more than an hour later.
        written.write(300, true);
        written.write(301, true);
        assert!(written.buckets.is_undated());
        assert_eq!(written.left_at(305), [300, 301]);
        // A year later, closed before the time is certain.
        assert_eq!(written.left_at(500_000), [300, 301]);
        written.write(500_000, true);
        assert_eq!(written.left_at(500_010), [300, 301, 500_000]);
        assert_eq!(written.buckets.next_expiry(&expiry(), written.visible), None);
        written.write(500_011, false);
        assert!(!written.buckets.is_undated());
        assert_eq!(written.left_at(500_070), [300, 301, 500_000, 500_011]);
        assert_eq!(written.left_at(500_071), [500_011]);
        assert_eq!(written.left_at(500_080), [0; 0]);
    }

    #[test]
    fn the_next_expiry_is_the_time_at_which_the_oldest_entry_is_hidden() {
        for minutes in [&[3, 14, 15, 27, 81][..], &[3, 24, 38, 39, 41, 300, 310], &[9, 10, 11, 20, 21, 40]] {
            let mut written = Written::default();
            minutes.iter().for_each(|&minute| written.write(minute, false));
            let mut times = Vec::new();
            while let Some(&oldest) = written.left_at(0).first() {
                let number = written.entries.iter().find(|(_, minute)| *minute == oldest).unwrap().0;
                let time = written.buckets.next_expiry(&expiry(), number).unwrap() / MINUTE;
                assert_eq!(written.left_at(time - 1).first(), Some(&oldest), "{minutes:?}");
                assert_ne!(written.left_at(time).first(), Some(&oldest), "{minutes:?}");
                // A table may have older entries, which are hidden.
                times.push((time, written.buckets.next_expiry(&expiry(), 1).map(|next| next / MINUTE)));
            }
            let next = times.iter().skip(1).map(|(time, _)| Some(*time));
            let left = written.visible >= written.buckets.horizon();
            assert!(times.iter().map(|(_, next)| *next).take(times.len() - 1).eq(next) && !left, "{times:?}");
        }
    }

    #[test]
    fn entries_from_before_the_first_boundary_count_as_written_then() {
        let mut written = Written { visible: 7, ..Written::default() };
        written.write(100, false);
        assert_eq!(written.buckets.due(&expiry(), 159 * MINUTE, 8), 0);
        assert_eq!(written.buckets.due(&expiry(), 160 * MINUTE, 8), 8);
        assert_eq!(
            (written.buckets.bucket_of(7), written.buckets.bucket_of(8), written.buckets.open()),
            (0, 1, 1)
        );
        assert_eq!((written.buckets.end_of(0), written.buckets.end_of(1)), (Some(100 * MINUTE), None));
    }
}
