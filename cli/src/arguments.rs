use std::borrow::Cow;
use std::ffi::{OsStr, OsString};

use sievedb::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::escape::{excerpt, unescape};
use crate::failure::{Failure, Result};

/// How keys and values are written.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Read \t \n \\ \xHH as the bytes that `scan` prints in this way.
    #[arg(long)]
    pub(crate) escaped: bool,
}

impl Arguments {
    pub(crate) fn decode(self, argument: &OsStr) -> Result<Vec<u8>> {
        self.decode_bytes(argument.as_encoded_bytes()).map(Cow::into_owned)
    }

    pub(crate) fn decode_optional(self, argument: Option<&OsString>) -> Result<Option<Vec<u8>>> {
        argument.map(|argument| self.decode(argument)).transpose()
    }

    pub(crate) fn decode_bytes(self, text: &[u8]) -> Result<Cow<'_, [u8]>> {
        if !self.escaped {
            return Ok(Cow::Borrowed(text));
        }
        unescape(text).map_err(|bad| Failure::Usage(bad.to_string()))
    }
}

pub(crate) fn check_limits(key: &[u8], value: &[u8]) -> Result<()> {
    let (key_bytes, value_bytes) = (key.len(), value.len());
    if key_bytes > KEY_BYTES_MAX {
        let key = excerpt(key);
        return Err(Failure::Usage(format!(
            "the key {key} has {key_bytes} bytes, over the limit of {KEY_BYTES_MAX}"
        )));
    }
    if value_bytes > VALUE_BYTES_MAX {
        let key = excerpt(key);
        return Err(Failure::Usage(format!(
            "the value of key {key} has {value_bytes} bytes, over the limit of {VALUE_BYTES_MAX}"
        )));
    }
    Ok(())
}
