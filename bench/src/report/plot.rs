//! One plot: a bar for each figure, on a logarithmic axis of how many times better it is than its peer.

const WIDTH: f64 = 720.0;
const LEFT: f64 = 20.0;
const ROW: f64 = 44.0;
const TOP: f64 = 40.0;
const COLOURS: [&str; 2] = ["#1b6ca8", "#c8553d"];

/// The plot. Bars to the right are better than the peer, bars to the left worse.
pub(super) fn svg(bars: &[(String, f64)]) -> String {
    let times = bars.iter().map(|(_, times)| times.log10());
    let (least, most) = times.fold((0.0_f64, 1.0_f64), |(a, b), at| (a.min(at), b.max(at)));
    let x = |log: f64| LEFT + (log - least) / (most - least) * (WIDTH - 2.0 * LEFT - 60.0);
    let height = TOP + ROW * bars.len() as f64 + 10.0;
    let mut parts = vec![
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"13\">"
        ),
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>".to_owned(),
        format!(
            "<text x=\"{LEFT}\" y=\"22\" font-weight=\"bold\">times better than the peer (logarithmic)</text>"
        ),
    ];
    for (row, (name, times)) in bars.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let (from, to) = (x(0.0).min(x(times.log10())), x(0.0).max(x(times.log10())));
        let colour = COLOURS[usize::from(*times < 1.0)];
        parts.push(format!("<text x=\"{LEFT}\" y=\"{:.1}\">{}</text>", y + 12.0, escaped(name)));
        parts.push(format!(
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"16\" fill=\"{colour}\"/>",
            y + 18.0,
            (to - from).max(1.0)
        ));
        parts.push(format!("<text x=\"{:.1}\" y=\"{:.1}\">{times:.2}</text>", to + 6.0, y + 31.0));
    }
    let one = x(0.0);
    parts.push(format!("<path d=\"M{one:.1} {TOP} V{height}\" stroke=\"black\"/>"));
    parts.push("</svg>\n".to_owned());
    parts.join("\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
