//! A certificate as commands list it in JSON: the same item everywhere.

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
    /// The logical name.
    pub(crate) name: String,
    /// Its category in the PKI resource.
    pub(crate) category: Category,
    /// `RSA` or `ECDSA`.
    pub(crate) algorithm: &'static str,
    /// For RSA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_size: Option<u32>,
    /// For ECDSA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) curve: Option<&'static str>,
    /// The logical name of its signer; its own for what signs itself.
    pub(crate) signer: String,
    /// First second of its life.
    pub(crate) not_before: Timestamp,
    /// Last second of its life.
    pub(crate) not_after: Timestamp,
    /// The level of the policy that chose the key.
    pub(crate) policy_source: PolicySource,
    /// The files that hold it, below the output directory.
    pub(crate) files: Vec<String>,
}

/// The list of items, as JSON prints it.
#[derive(Debug, Serialize)]
struct Items<'a> {
    items: &'a [CertificateItem],
}

impl CertificateItem {
    /// The three fields that describe a key.
    pub(crate) fn key(key: KeySpec) -> (&'static str, Option<u32>, Option<&'static str>) {
        (key.algorithm(), key.key_size(), key.curve().map(|curve| curve.name()))
    }

    fn key_text(&self) -> String {
        let size = self.key_size.map(|bits| bits.to_string());
        format!("{} {}", self.algorithm, size.as_deref().or(self.curve).unwrap_or_default())
    }
}

/// `{"items": […]}`.
pub(crate) fn print_json(items: &[CertificateItem], out: &mut dyn Write) -> io::Result<()> {
    output::json(&Items { items }, out)
}

/// One line a certificate.
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
