//! `perennial crds`: the CustomResourceDefinitions to apply.

use std::io::Write;

use crate::Outcome;

/// Prints them as YAML.
pub(crate) fn run(out: &mut dyn Write) -> anyhow::Result<Outcome> {
    out.write_all(perennial_api::pki::crd_yaml().as_bytes())?;
    Ok(Outcome::Done)
}
