//! Writer of Prometheus' text format, version 0.0.4.

use std::fmt::{Display, Write as _};

/// Kind of a family of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only rises; its name gets the suffix `_total`.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Quantiles, a sum and a count.
    Summary,
}

/// A page that is being written. All names begin with `kumi_`.
#[derive(Debug, Default)]
pub struct MetricsPage {
    text: String,
    name: String,
}

impl MetricsPage {
    /// Begins a family; the samples that follow are its. `name` is of `a-z`, `0-9` and `_`.
    pub fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        debug_assert!(name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_')));
        debug_assert!(!help.contains(['\\', '\n']));
        let (suffix, kind) = match kind {
            MetricKind::Counter => ("_total", "counter"),
            MetricKind::Gauge => ("", "gauge"),
            MetricKind::Summary => ("", "summary"),
        };
        self.name = format!("kumi_{name}{suffix}");
        let name = &self.name;
        self.text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// A family of one sample without labels.
    pub fn single(&mut self, name: &str, kind: MetricKind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(&[], value);
    }

    /// A sample of the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample_of("", labels, value);
    }

    /// A sample of a part of the family, such as `_sum`.
    pub fn sample_of(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.text.push_str(if index == 0 { "{" } else { "," });
            self.text.push_str(label);
            self.text.push_str("=\"");
            escape(&mut self.text, text);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, " {value}");
    }

    /// The page.
    #[must_use]
    pub fn finish(self) -> String {
        self.text
    }
}

/// A label's value may be anything; three characters would end it or the line.
fn escape(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page() {
        let mut page = MetricsPage::default();
        page.family("jobs", MetricKind::Gauge, "Jobs here.");
        page.sample(&[], 2);
        page.family("job_info", MetricKind::Gauge, "Names.");
        page.sample(&[("job", "7"), ("name", "a\"b\\c\nd {x=\"y\"} 1")], 1);
        page.family("wait_seconds", MetricKind::Summary, "Waits.");
        page.sample(&[("quantile", "0.5")], 0.25);
        page.sample_of("_count", &[], 3);
        let expected = r#"# HELP kumi_jobs Jobs here.
# TYPE kumi_jobs gauge
kumi_jobs 2
# HELP kumi_job_info Names.
# TYPE kumi_job_info gauge
kumi_job_info{job="7",name="a\"b\\c\nd {x=\"y\"} 1"} 1
# HELP kumi_wait_seconds Waits.
# TYPE kumi_wait_seconds summary
kumi_wait_seconds{quantile="0.5"} 0.25
kumi_wait_seconds_count 3
"#;
        assert_eq!(page.finish(), expected);
    }
}
