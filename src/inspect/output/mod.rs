//! Output of a description, independent of the kind of a file.

mod damage;
mod escape;
mod event;
mod fields;
mod lines;
mod out;
mod stop;
mod text;
mod view;
mod words;

pub use damage::{FileDamage, Keys};
pub use escape::escape;
pub(in crate::inspect) use escape::short;
pub(in crate::inspect) use event::Payload;
pub use event::{Entry, Event, Kind, Place, Report, Sink, Span, Value};
pub(in crate::inspect) use fields::{Form, fields};
pub(in crate::inspect) use lines::Lines;
pub(in crate::inspect) use out::Out;
pub use stop::Stop;
pub(in crate::inspect) use stop::{Fault, Result};
pub use text::{Text, verdict};
pub use view::{Detail, Entries, View};
pub(in crate::inspect) use words::{bytes, count, counted, percent};
