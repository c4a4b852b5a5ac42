//! Plot of measured and simulated times.

use super::super::draw::{COLOURS, HEIGHT, MARGIN, WIDTH, circle, label, page, path};
use super::{TableRow, Work, name};

/// Seconds of a call by number of clients at a site, both on logarithmic scales. Circles are measured, lines
/// simulated.
pub(super) fn svg(lines: &[TableRow]) -> String {
    let shown: Vec<&TableRow> = lines.iter().filter(|line| line.cell.sites == 1).collect();
    let times = shown.iter().flat_map(|line| [line.measured.response_s, line.simulated.response_s]);
    let times: Vec<f64> = times.filter(|time| *time > 0.0 && time.is_finite()).collect();
    let low = times.iter().copied().fold(f64::INFINITY, f64::min).log10().floor();
    let high = times.iter().copied().fold(f64::NEG_INFINITY, f64::max).log10().ceil();
    let (low, high) = if low < high { (low, high) } else { (-1.0, 0.0) };
    let x = |clients: usize| MARGIN + (clients as f64).log2() / 4.0 * (WIDTH - 2.0 * MARGIN);
    let y = |time: f64| {
        HEIGHT - MARGIN - (time.max(1e-9).log10() - low) / (high - low) * (HEIGHT - 2.0 * MARGIN)
    };
    let mut parts = Vec::new();
    for clients in [1, 2, 4, 8, 16] {
        parts.push(label(x(clients), HEIGHT - MARGIN + 18.0, "black", &clients.to_string()));
    }
    for power in low as i32..=high as i32 {
        let time = 10f64.powi(power);
        parts.push(path("#cccccc", &[(x(1), y(time)), (x(16), y(time))]));
        parts.push(label(MARGIN - 28.0, y(time) + 4.0, "black", &format!("{time} s")));
    }
    let mut works: Vec<Work> = Vec::new();
    shown.iter().for_each(|line| {
        if !works.contains(&line.work) {
            works.push(line.work);
        }
    });
    for (number, work) in works.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let own: Vec<&&TableRow> = shown.iter().filter(|line| line.work == *work).collect();
        let place = |line: &&&TableRow| (x(line.cell.clients), y(line.simulated.response_s));
        parts.push(path(colour, &own.iter().map(place).collect::<Vec<_>>()));
        for line in own {
            let (x, y) = (x(line.cell.clients), y(line.measured.response_s));
            parts.push(circle(colour, (x, y)));
        }
        let kind = if matches!(work, Work::Ep(_)) { "EP" } else { "Linpack" };
        let text = format!("{kind}, {}", name(*work));
        parts.push(label(MARGIN + 70.0, MARGIN + 16.0 * number as f64, colour, &text));
    }
    let title = "seconds of a call against clients of one site; points measured, lines simulated";
    parts.push(label(WIDTH / 2.0, 24.0, "black", title));
    page(&parts)
}
