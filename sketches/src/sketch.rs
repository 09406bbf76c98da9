//! What all structures have in common: bytes, and something to say of themselves.

use std::fmt;

use crate::envelope::{DecodeError, Envelope, Kind, seal};

/// A structure that can be written and read. See `format.md` for its bytes.
pub trait Sketch: Sized {
    /// What it is.
    const KIND: Kind;

    /// The seed of its hash, [`key_hash`](crate::hash::key_hash).
    fn seed(&self) -> u64;

    /// Its parameters as the header has them.
    #[doc(hidden)]
    fn parameters(&self) -> Vec<u64>;

    /// Its contents.
    #[doc(hidden)]
    fn body(&self) -> Vec<u8>;

    /// The structure with these parts, which are checked.
    #[doc(hidden)]
    fn from_parts(parts: Parts<'_>) -> Result<Self, DecodeError>;

    /// What there is to say of it. At most linear in its size.
    fn summary(&self) -> Summary;

    /// Its bytes: the same for the same contents, on every machine. Linear in its size.
    fn encode(&self) -> Vec<u8> {
        seal(Self::KIND, self.seed(), &self.parameters(), &self.body())
    }

    /// The structure whose bytes these are. Every byte is verified, and nothing is allocated by what they
    /// claim. Linear.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::DecodeErrorKind::Unsupported) if they are intact but of a newer version, of an
    /// unknown kind or with an unknown required flag; [`Corrupt`](crate::DecodeErrorKind::Corrupt) if they
    /// are damaged or of another kind.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let envelope = Envelope::open(bytes)?;
        if envelope.kind != Self::KIND {
            let detail = format!("expected a {}, found a {}", Self::KIND, envelope.kind);
            return Err(DecodeError::corrupt(32, "sketch kind", detail));
        }
        Self::from_parts(Parts(envelope))
    }
}

/// Verified bytes of a structure of the right kind.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct Parts<'a>(pub(crate) Envelope<'a>);

/// What a structure says of itself.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// What it is.
    pub kind: Kind,
    /// The seed of its hash.
    pub seed: u64,
    /// Its parameters and what it holds, by name, as a person reads them.
    pub facts: Vec<(&'static str, String)>,
    /// The predicted share of wrong answers as it stands, if it gives wrong answers.
    pub predicted_rate: Option<f64>,
    /// What of its bytes are contents, without the header.
    pub body_bytes: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {} bytes without the header", self.kind, self.body_bytes)?;
        for (name, value) in &self.facts {
            writeln!(f, "  {name:<16}{value}")?;
        }
        if let Some(rate) = self.predicted_rate {
            writeln!(f, "  {:<16}{:.4} %", "predicted rate", 100.0 * rate)?;
        }
        Ok(())
    }
}
