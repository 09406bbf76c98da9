//! What a person sees: one screen, eighty columns, no colour.
pub(super) fn report(f: &super::run::Findings) -> String { format!("{:#?} {:#?} {:?} {}", f.loaded.with, f.loaded.without.present, f.load_time, f.disk_bytes) }
