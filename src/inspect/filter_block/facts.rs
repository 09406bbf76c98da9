//! The summary of a filter: kind, size, quality.

use crate::filter::header::HEADER_BYTES;
use crate::filter::{Header, Kind};
use crate::inspect::file::Window;
use crate::inspect::output::{Out, Result, Value, bytes, count, counted, percent};

pub(super) fn kind_words(header: &Header) -> String {
    match header.kind {
        Kind::Bloom => format!("Bloom, {} bits, {} probes", count(header.size), header.probes),
        Kind::BlockedBloom => format!(
            "blocked Bloom, {} of 64 bytes, {} probes",
            counted(header.size, "line", "lines"),
            header.probes
        ),
        Kind::Ribbon if header.answers_only_maybe() => {
            "ribbon that could not be built: it answers \"maybe\" for every key".into()
        }
        Kind::Ribbon => {
            let layers = header.buckets.iter().filter(|&&buckets| buckets > 0).count() as u64;
            let columns: Vec<_> =
                header.column_groups.iter().filter(|&&c| c > 0).map(u8::to_string).collect();
            format!(
                "ribbon, {} and a last one, columns {}",
                counted(layers, "bumped layer", "bumped layers"),
                columns.join(" + ")
            )
        }
        other => other.to_string(),
    }
}

pub(in crate::inspect) fn rate(header: &Header) -> f64 {
    header.rate as f64 / 2f64.powi(64)
}

fn per_key(bytes: u64, header: &Header) -> f64 {
    8.0 * bytes as f64 / header.key_count.max(1) as f64
}

fn section_bytes(header: &Header) -> u64 {
    header.sections.iter().fold(0, |sum, section| sum.saturating_add(section.len))
}

pub(in crate::inspect) fn facts_in_short(out: &mut Out<'_>, header: &Header) -> Result {
    let size = format!("{}, {:.2} bits per key", bytes(header.block_len), per_key(header.block_len, header));
    out.fact("filter", kind_words(header), format!("{size}, rate {} predicted", percent(rate(header))))
}

pub(in crate::inspect) fn facts_at(out: &mut Out<'_>, window: &Window<'_>, at: u64) -> Result {
    match Header::decode(&window.apart(at, HEADER_BYTES as u64)?) {
        Ok(header) => facts(out, &header),
        Err(_) => Ok(()),
    }
}

fn facts(out: &mut Out<'_>, header: &Header) -> Result {
    out.fact("kind", kind_words(header), "")?;
    out.fact("owner", header.owner, "file id of its table")?;
    out.fact("keys", count(header.key_count), "")?;
    let (sections, whole) = (section_bytes(header), header.block_len);
    if header.key_count == 0 {
        return out.fact("size", bytes(whole), "");
    }
    out.fact("size", bytes(whole), format!("{} in sections", bytes(sections)))?;
    let each = [sections, whole].map(|bytes| per_key(bytes, header));
    let in_all = format!("in sections; {:.3} with header and page checksums", each[1]);
    out.fact("bits per key", format!("{:.3}", each[0]), in_all)?;
    let predicted = rate(header);
    let one_in = match predicted > 0.0 {
        true => format!("predicted, one in {}", count((1.0 / predicted).round() as u64)),
        false => "predicted".into(),
    };
    out.fact("rate", Value::Share(predicted), one_in)?;
    let least = -predicted.log2();
    if least.is_finite() && least > 0.0 {
        let above = each.map(|bits| format!("{:+.2} %", 100.0 * (bits / least - 1.0)));
        let of_rate = "bits per key at least for that rate";
        let distance = format!("{of_rate}; {} in sections, {} with all", above[0], above[1]);
        out.fact("log2(1/rate)", format!("{least:.3}"), distance)?;
    }
    Ok(())
}
