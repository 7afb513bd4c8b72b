//! Writes the metrics of an installation in the Prometheus text format, for node_exporter's textfile collector.
//!
//! This collector reads only the classic text format. The metrics library of the operator writes OpenMetrics, in which the `# TYPE`
//! line of a counter lacks `_total`.

use std::fmt::Write as _;
use std::time::Duration;

use perennial_core::catalog::{Catalog, Component, Row};
use perennial_core::key::KeySpec;

/// One issued certificate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample<'a> {
    /// Its row.
    pub(crate) row: &'a Row,
    /// Its key.
    pub(crate) key: KeySpec,
    /// The time to generate key and certificate.
    pub(crate) duration: Duration,
}

/// The upper bounds of the histogram in seconds.
const BUCKETS: [(f64, &str); 7] =
    [(0.01, "0.01"), (0.1, "0.1"), (0.5, "0.5"), (1.0, "1"), (2.0, "2"), (5.0, "5"), (10.0, "10")];

/// Returns the content of the file. Names, labels and bounds are the same as in the operator, so that one query reads both.
pub(crate) fn render(catalog: &Catalog, samples: &[Sample<'_>]) -> String {
    let mut text = String::new();
    family(&mut text, "openshift_pki_certificate_info", "gauge", "Certificates and the parameters of their keys.");
    for sample in samples {
        // A certificate that is only in a file has neither.
        let secret = catalog.secret_of(sample.row);
        let (namespace, secret) = secret.map_or(("", ""), |object| (object.namespace, object.name));
        let category = Some(category(catalog, sample));
        let labels = labels(sample, category, &[("namespace", namespace), ("secret", secret)]);
        line(&mut text, format_args!("openshift_pki_certificate_info{{{labels}}} 1"));
    }
    let name = "openshift_pki_certificate_generated_total";
    family(&mut text, name, "counter", "Certificates generated, by result.");
    for sample in samples {
        let labels = labels(sample, Some(category(catalog, sample)), &[("result", "success")]);
        line(&mut text, format_args!("{name}{{{labels}}} 1"));
    }
    let name = "openshift_pki_certificate_generation_duration_seconds";
    family(&mut text, name, "histogram", "Time to generate a key and its certificate.");
    for sample in samples {
        let seconds = sample.duration.as_secs_f64();
        for (bound, le) in BUCKETS {
            let labels = labels(sample, None, &[("le", le)]);
            line(&mut text, format_args!("{name}_bucket{{{labels}}} {}", u8::from(seconds <= bound)));
        }
        line(&mut text, format_args!("{name}_bucket{{{}}} 1", labels(sample, None, &[("le", "+Inf")])));
        line(&mut text, format_args!("{name}_sum{{{}}} {seconds}", labels(sample, None, &[])));
        line(&mut text, format_args!("{name}_count{{{}}} 1", labels(sample, None, &[])));
    }
    text
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    line(text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a String takes all that is written to it");
}

fn category(catalog: &Catalog, sample: &Sample<'_>) -> &'static str {
    catalog.logical(sample.row).category.name()
}

/// Returns the labels of a sample, with the category if there is one, then `more`. No value needs escapes.
fn labels(sample: &Sample<'_>, category: Option<&str>, more: &[(&str, &str)]) -> String {
    let size = sample.key.key_size().map(|bits| bits.to_string()).unwrap_or_default();
    let mut labels = vec![("certificate_name", sample.row.certificate)];
    labels.extend(category.map(|category| ("category", category)));
    labels.extend([
        ("algorithm", sample.key.algorithm()),
        ("key_size", &size),
        ("curve", sample.key.curve().map_or("", |curve| curve.name())),
        ("component", Component::Installer.operator()),
    ]);
    let labels = labels.iter().chain(more).map(|(name, value)| format!("{name}=\"{value}\""));
    labels.collect::<Vec<String>>().join(",")
}
