//! The writer of events. It tracks the depth, counts checks, and omits events that the view excludes. Damage is never
//! omitted.

use std::borrow::Cow;

use super::damage::{FileDamage, Keys};
use super::event::{Event, Kind, Payload, Place, Report, Sink, Span, Value};
use super::stop::{Fault, Result, Stop};
use super::view::{Detail, View};
use crate::codec::{DecodeError, DecodeErrorKind};

const DAMAGE_PRINTED_MAX: u64 = 1000;

const RECORD_BYTES_MAX: u64 = 64 << 20;

const FILTER_BYTES_MAX: u64 = 256 << 20;

pub(in crate::inspect) struct Out<'s> {
    sink: &'s mut dyn Sink,
    pub(in crate::inspect) view: View,
    pub(in crate::inspect) detail: Detail,
    depth: u8,
    muted: u32,
    pub(in crate::inspect) sums_at: u64,
    /// The keys that damage at this position may affect.
    pub(in crate::inspect) keys: Option<Keys>,
    pub(in crate::inspect) probes_filters: bool,
    /// After this many pieces of damage, further damage is only counted.
    damage_max: u64,
    pub(in crate::inspect) filter_bytes_max: u64,
    pub(in crate::inspect) record_bytes_max: u64,
    pub(in crate::inspect) report: Report,
}

impl<'s> Out<'s> {
    pub(in crate::inspect) fn new(sink: &'s mut dyn Sink, view: &View, len: u64) -> Self {
        let report = Report {
            kind: Kind::Unknown,
            len,
            units: 0,
            accounted: 0,
            torn_bytes: 0,
            partial: false,
            checksums: 0,
            sums: 0,
            damage_count: 0,
            first_damage: None,
        };
        Self {
            sink,
            view: view.clone(),
            detail: view.detail_for(len),
            depth: 0,
            muted: 0,
            sums_at: 0,
            keys: None,
            probes_filters: true,
            damage_max: DAMAGE_PRINTED_MAX,
            filter_bytes_max: FILTER_BYTES_MAX,
            record_bytes_max: RECORD_BYTES_MAX,
            report,
        }
    }

    pub(in crate::inspect) fn without_limits(mut self) -> Self {
        (self.damage_max, self.filter_bytes_max) = (u64::MAX, u64::MAX);
        self
    }

    pub(in crate::inspect) fn event(&mut self, event: &Event<'_>) -> Result {
        self.sink.event(event).map_err(Stop::Sink)
    }

    pub(in crate::inspect) fn begin(&mut self, kind: Kind) -> Result {
        self.report.kind = kind;
        let len = self.report.len;
        self.event(&Event::Begin { kind, len })
    }

    pub(in crate::inspect) fn with_whole_records(self) -> Self {
        Self { record_bytes_max: u64::MAX, ..self }
    }

    pub(in crate::inspect) fn end(mut self) -> Result<Report> {
        let report = self.report.clone();
        self.event(&Event::End(report.clone()))?;
        Ok(report)
    }

    pub(in crate::inspect) fn fact<'a>(
        &mut self,
        label: &'static str,
        value: impl Into<Value<'a>>,
        note: impl Into<Cow<'a, str>>,
    ) -> Result {
        if !self.view.is_whole() {
            return Ok(());
        }
        self.event(&Event::Fact { label, value: value.into(), note: note.into() })
    }

    pub(super) fn is_shown(&self) -> bool {
        self.muted == 0
    }

    /// Hides the spans of `body` unless `shown`.
    pub(in crate::inspect) fn showing<T>(
        &mut self,
        shown: bool,
        body: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.muted += u32::from(!shown);
        let result = body(self);
        self.muted -= u32::from(!shown);
        result
    }

    pub(in crate::inspect) fn group<'a, T>(
        &mut self,
        place: Place,
        len: u64,
        label: impl Into<Cow<'a, str>>,
        note: impl Into<Cow<'a, str>>,
        body: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.span(place, len, &[], label, Value::None, note, None)?;
        self.indented(body)
    }

    pub(in crate::inspect) fn indented<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth = self.depth.saturating_add(1);
        let result = body(self);
        self.depth = self.depth.saturating_sub(1);
        result
    }

    pub(in crate::inspect) fn leaf<'a>(
        &mut self,
        place: Place,
        bytes: &'a [u8],
        label: impl Into<Cow<'a, str>>,
        value: impl Into<Value<'a>>,
        note: impl Into<Cow<'a, str>>,
    ) -> Result {
        self.span(place, bytes.len() as u64, bytes, label, value.into(), note, None)
    }

    pub(in crate::inspect) fn checksum(
        &mut self,
        place: Place,
        bytes: &[u8],
        label: &'static str,
        stored: u64,
        computed: u64,
    ) -> Result {
        let good = stored == computed;
        let value = Value::Hex(stored, bytes.len() as u8);
        let digits = 2 * bytes.len();
        let note = if good { String::new() } else { format!("computed {computed:0digits$x}") };
        self.span(place, bytes.len() as u64, bytes, label, value, note, Some(good))
    }

    #[expect(clippy::too_many_arguments, reason = "they are the fields of a span")]
    pub(in crate::inspect) fn span<'a>(
        &mut self,
        place: Place,
        len: u64,
        bytes: &'a [u8],
        label: impl Into<Cow<'a, str>>,
        value: Value<'a>,
        note: impl Into<Cow<'a, str>>,
        intact: Option<bool>,
    ) -> Result {
        if !self.is_shown() {
            return Ok(());
        }
        let (depth, label, note) = (self.depth, label.into(), note.into());
        self.event(&Event::Span(Span { depth, place, len, bytes, label, value, note, intact }))
    }

    /// Writes an event for a match only while spans are shown.
    pub(in crate::inspect) fn check(
        &mut self,
        what: &'static str,
        against: &'static str,
        found: u64,
        expected: u64,
    ) -> Result {
        if found != expected {
            let detail = format!("the {against} state {expected}, found {found}");
            return self.damage(self.sums_at, what, detail);
        }
        self.report.sums += 1;
        match self.is_shown() {
            true => self.event(&Event::Check { what: what.into(), against, found, expected }),
            false => Ok(()),
        }
    }

    pub(in crate::inspect) fn damage(
        &mut self,
        offset: u64,
        what: &'static str,
        detail: impl Into<String>,
    ) -> Result {
        let keys = self.keys.clone();
        self.describe(FileDamage { keys, ..FileDamage::new(offset, what, detail) })
    }

    pub(in crate::inspect) fn fault(&mut self, fault: Fault, keys: Option<Keys>) -> Result {
        match fault {
            Fault::Decode(error) => self.concerning(keys, |out| out.refused(0, &error)),
            Fault::Stop(Stop::Read { offset, source }) => {
                self.report.damage_count += 1;
                self.sink.unreadable(offset, source, keys.as_ref())
            }
            Fault::Stop(stop) => Err(stop),
        }
    }

    pub(in crate::inspect) fn concerning<T>(
        &mut self,
        keys: Option<Keys>,
        body: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let around = std::mem::replace(&mut self.keys, keys);
        let result = body(self);
        self.keys = around;
        result
    }

    pub(in crate::inspect) fn refused(&mut self, base: u64, error: &DecodeError) -> Result {
        let keys = self.keys.clone();
        self.describe(FileDamage { keys, ..FileDamage::of(base, error) })
    }

    /// Reports an error whose offset is relative to a payload.
    pub(in crate::inspect) fn refused_in(&mut self, payload: Payload, error: &DecodeError) -> Result {
        match (payload.place(error.offset), &error.kind) {
            (Place::File(offset), _) => self.refused(offset - error.offset, error),
            (Place::Payload { of, at }, DecodeErrorKind::Corrupt(detail)) => {
                self.damage(of, error.what, format!("{detail} (byte {at} of the payload)"))
            }
            (Place::Payload { of, .. }, _) => self.refused(of, &DecodeError { offset: 0, ..error.clone() }),
        }
    }

    fn describe(&mut self, damage: FileDamage) -> Result {
        self.report.damage_count += 1;
        self.report.first_damage.get_or_insert_with(|| damage.clone());
        if self.report.damage_count > self.damage_max {
            return Ok(());
        }
        self.event(&Event::Damage(damage))
    }
}
