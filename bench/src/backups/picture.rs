use sievedb_report::svg::Svg;

use super::Made;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 270.0;
const RIGHT: f64 = 30.0;
const ROW: f64 = 30.0;
const LATENCY_TOP: f64 = 80.0;
const BACKUPS_TOP: f64 = 270.0;
const PANEL: f64 = 200.0;

const QUANTILES: [(&str, &str); 4] =
    [("#1b7837", "median"), ("#7fbf7b", "99 %"), ("#d95f02", "99.9 %"), ("#999999", "longest")];

const DECADES: u32 = 6;

pub(super) fn picture(latencies: &[(&str, [f64; 4])], made: &[Made], minutes: f64) -> String {
    let height = BACKUPS_TOP + PANEL + 70.0;
    let mut svg = Svg::picture(WIDTH, height, 12, "Latency of a write, by what runs next to the writer");
    for (place, (colour, name)) in QUANTILES.iter().enumerate() {
        let x = LEFT + 120.0 * place as f64;
        dot(&mut svg, x, 48.0, colour);
        svg.text(x + 14.0, 52.0, "", name);
    }
    let x = |nanos: f64| LEFT + (nanos / 1e3).max(1.0).log10() / f64::from(DECADES) * (WIDTH - LEFT - RIGHT);
    let bottom = LATENCY_TOP + ROW * latencies.len() as f64;
    for decade in 0..=DECADES {
        let at = x(1e3 * 10f64.powi(decade as i32));
        svg.polyline([(at, LATENCY_TOP), (at, bottom)], "stroke=\"#dddddd\"");
        let label = ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"][decade as usize];
        svg.text(at, bottom + 16.0, "text-anchor=\"middle\"", label);
    }
    for (place, (words, quantiles)) in latencies.iter().enumerate() {
        let y = LATENCY_TOP + ROW * (place as f64 + 0.5);
        svg.text(LEFT - 12.0, y + 4.0, "text-anchor=\"end\"", &words.replace('`', ""));
        for ((colour, _), nanos) in QUANTILES.iter().zip(quantiles) {
            dot(&mut svg, x(*nanos), y, colour);
        }
    }
    backups(&mut svg, made, minutes);
    svg.finish()
}

fn dot(svg: &mut Svg, x: f64, y: f64, colour: &str) {
    svg.rectangle(x - 5.0, y - 5.0, 10.0, 10.0, &format!("rx=\"5\" fill=\"{colour}\""));
}

fn backups(svg: &mut Svg, made: &[Made], minutes: f64) {
    svg.title(BACKUPS_TOP - 10.0, "Seconds of each backup, and of its restore");
    for (place, (colour, words)) in
        [("#1b7837", "backup"), ("#7fbf7b", "restore, verified"), ("#d95f02", "killed backup")]
            .iter()
            .enumerate()
    {
        let x = 16.0 + 150.0 * place as f64;
        svg.rectangle(x, BACKUPS_TOP + 2.0, 12.0, 12.0, &format!("fill=\"{colour}\""));
        svg.text(x + 17.0, BACKUPS_TOP + 13.0, "", words);
    }
    let (left, bottom) = (50.0, BACKUPS_TOP + 30.0 + PANEL);
    let restored = |made: &Made| made.restored.map_or(0.0, |restored| restored.as_secs_f64());
    let most = made.iter().map(|made| made.took.as_secs_f64() + restored(made)).fold(1.0, f64::max).ceil();
    let y = |seconds: f64| bottom - seconds / most * PANEL;
    for second in 0..=most as u32 {
        svg.polyline([(left, y(second.into())), (WIDTH - RIGHT, y(second.into()))], "stroke=\"#dddddd\"");
        svg.text(left - 8.0, y(second.into()) + 4.0, "text-anchor=\"end\"", &second.to_string());
    }
    let x = |seconds: f64| left + seconds / (minutes * 60.0) * (WIDTH - left - RIGHT);
    for made in made {
        let (at, took) = (x(made.at.as_secs_f64()), made.took.as_secs_f64());
        let colour = if made.is_killed { "#d95f02" } else { "#1b7837" };
        svg.rectangle(at, y(took), 12.0, bottom - y(took), &format!("fill=\"{colour}\""));
        let end = took + restored(made);
        svg.rectangle(at, y(end), 12.0, y(took) - y(end), "fill=\"#7fbf7b\"");
    }
    for part in 0..=4_u32 {
        let minute = minutes * f64::from(part) / 4.0;
        let label = format!("{minute:.0} min");
        svg.text(x(minute * 60.0), bottom + 16.0, "text-anchor=\"middle\"", &label);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_picture_has_a_dot_for_each_quantile_and_a_bar_for_each_backup() {
        let made = |is_killed| Made {
            at: Duration::from_secs(30),
            took: Duration::from_secs(2),
            is_killed,
            stored: 1,
            restored: (!is_killed).then_some(Duration::from_secs(1)),
            writes: 1,
        };
        let svg = picture(&[("alone", [1e3, 1e4, 1e6, 1e9])], &[made(false), made(true)], 1.0);
        assert_eq!(svg.matches("rx=\"5\"").count(), 2 * QUANTILES.len());
        assert_eq!(svg.matches("width=\"12.0\"").count(), 3 + 4);
    }
}
