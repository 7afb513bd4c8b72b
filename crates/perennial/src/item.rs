//! A certificate in the JSON and table output of `perennial install`.

use std::io::{self, Write};

use jiff::Timestamp;
use perennial_core::key::KeySpec;
use perennial_core::policy::{Category, PolicySource};
use serde::Serialize;

use crate::output;
use crate::table::Table;

/// One certificate.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CertificateItem {
    /// The name of the certificate.
    pub(crate) name: String,
    /// Its category in the PKI resource.
    pub(crate) category: Category,
    /// `RSA` or `ECDSA`.
    pub(crate) algorithm: &'static str,
    /// The size of an RSA key in bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_size: Option<u32>,
    /// The curve of an ECDSA key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) curve: Option<&'static str>,
    /// The name of its signer; its own name if it is self-signed.
    pub(crate) signer: String,
    /// The first second of its validity.
    pub(crate) not_before: Timestamp,
    /// The last second of its validity.
    pub(crate) not_after: Timestamp,
    /// The level of the policy that chose the key.
    pub(crate) policy_source: PolicySource,
    /// Its files, relative to the output directory.
    pub(crate) files: Vec<String>,
}

/// The list of items in the JSON output.
#[derive(Debug, Serialize)]
struct Items<'a> {
    items: &'a [CertificateItem],
}

impl CertificateItem {
    /// Returns the fields `algorithm`, `keySize` and `curve` of a key.
    pub(crate) fn key(key: KeySpec) -> (&'static str, Option<u32>, Option<&'static str>) {
        (key.algorithm(), key.key_size(), key.curve().map(|curve| curve.name()))
    }

    fn key_text(&self) -> String {
        let size = self.key_size.map(|bits| bits.to_string());
        format!("{} {}", self.algorithm, size.as_deref().or(self.curve).unwrap_or_default())
    }
}

/// Prints `{"items": […]}`.
pub(crate) fn print_json(items: &[CertificateItem], out: &mut dyn Write) -> io::Result<()> {
    output::json(&Items { items }, out)
}

/// Prints one line for each certificate.
pub(crate) fn print_table(items: &[CertificateItem], out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(&["NAME", "CATEGORY", "KEY", "FROM", "SIGNER", "NOT BEFORE", "NOT AFTER"]);
    for item in items {
        let self_signed = item.signer == item.name;
        table.row([
            item.name.clone(),
            item.category.to_string().trim_end_matches("Certificate").to_owned(),
            item.key_text(),
            item.policy_source.to_string(),
            if self_signed { "(self)".to_owned() } else { item.signer.clone() },
            item.not_before.to_string(),
            item.not_after.to_string(),
        ]);
    }
    table.print(out)
}
