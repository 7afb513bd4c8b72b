//! `perennial crds`: the CustomResourceDefinitions to apply.

use std::io::Write;

/// Prints them as YAML.
pub(crate) fn run(out: &mut dyn Write) -> anyhow::Result<()> {
    Ok(out.write_all(perennial_api::pki::crd_yaml().as_bytes())?)
}
