//! `--from`, `--to` and `--prefix`.

use std::ffi::OsString;
use std::ops::Bound;

use sievedb::{Iter, Keyspace};

use crate::arguments::Arguments;
use crate::failure::Result;

/// The keys that all given options allow; all keys without options.
#[derive(Debug, clap::Args)]
pub(crate) struct Bounds {
    /// The first key.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// The key to end before.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,
    /// Only keys that start with these bytes.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    prefix: Option<OsString>,
    #[command(flatten)]
    arguments: Arguments,
}

pub(crate) struct Range {
    first: Vec<u8>,
    end: Bound<Vec<u8>>,
}

impl Bounds {
    pub(crate) fn decode(&self) -> Result<Range> {
        let decode = |argument: &Option<OsString>| self.arguments.decode_optional(argument.as_ref());
        let (from, to) = (decode(&self.from)?, decode(&self.to)?);
        let prefix = decode(&self.prefix)?.unwrap_or_default();
        let end = match (to, after_prefix(&prefix)) {
            (Some(to), Some(after)) => Bound::Excluded(to.min(after)),
            (Some(end), None) | (None, Some(end)) => Bound::Excluded(end),
            (None, None) => Bound::Unbounded,
        };
        Ok(Range { first: from.unwrap_or_default().max(prefix), end })
    }
}

impl Range {
    pub(crate) fn entries(self, keyspace: &Keyspace) -> Iter<'static> {
        keyspace.range(self.bounds())
    }

    pub(crate) fn bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Included(self.first), self.end)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.first.is_empty() && self.end == Bound::Unbounded
    }
}

/// The prefix up to its last byte below 0xff, with that byte incremented.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_after_a_prefix_follows_all_keys_that_have_it() {
        assert_eq!(after_prefix(b""), None);
        assert_eq!(after_prefix(b"\xff\xff"), None);
        assert_eq!(after_prefix(b"ab").unwrap(), b"ac");
        assert_eq!(after_prefix(b"a\xff").unwrap(), b"b");
    }
}
