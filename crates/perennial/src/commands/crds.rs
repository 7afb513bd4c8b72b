//! `perennial crds`: the CustomResourceDefinitions that Perennial needs.

use std::io::Write;
use std::path::PathBuf;

use perennial_api::{crd, crds};

use crate::install::staging::replace_file;

/// Print the CustomResourceDefinitions that Perennial needs
///
/// PKI decides about keys. The others are kinds of OpenShift that Perennial reads or writes, trimmed to that, for a
/// cluster that is not OpenShift.
///
/// Give them to `kubectl create`, not to `kubectl apply`. On OpenShift, and wherever an operator of OpenShift was
/// installed, kinds have definitions already, which know more than ours and belong to somebody else. `create` refuses
/// what exists, leaves it as it is, and goes on with the rest; in the end it fails if it refused something. `apply`
/// would overwrite it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial crds | kubectl create -f -       create what is absent\n  \
    perennial crds pki | kubectl create -f -   only this one\n  \
    perennial crds featuregate network         print some\n  \
    perennial crds --out deploy/crds           a file for each\n\n\
    Exit codes:\n  \
    0   done\n  \
    1   failed\n  \
    2   wrong usage, or there is none of this name")]
pub(crate) struct Args {
    /// Which ones: a kind, a singular, plural or short name, or a full name such as pkis.config.openshift.io
    #[arg(value_name = "NAME", value_parser = full_name)]
    names: Vec<String>,

    /// Write a file for each into this directory, which exists, instead of printing
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints them as YAML, or writes them.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut chosen = crds();
    chosen
        .retain(|it| args.names.is_empty() || it.metadata.name.as_ref().is_some_and(|name| args.names.contains(name)));
    for (index, it) in chosen.iter().enumerate() {
        let text = crd::yaml(it);
        match &args.out {
            Some(directory) => replace_file(&directory.join(crd::file_name(it)), &text)?,
            None => write!(out, "{}{text}", if index == 0 { "" } else { "---\n" })?,
        }
    }
    Ok(())
}

/// The full name of the definition that is called so, as kubectl would understand it.
fn full_name(called: &str) -> Result<String, String> {
    let called = called.to_lowercase();
    let mut plurals = Vec::new();
    for it in crds() {
        let (full, names) = (it.metadata.name.unwrap_or_default(), it.spec.names);
        let singular = names.singular.unwrap_or_default();
        let mut short = names.short_names.into_iter().flatten();
        if [&full, &names.plural, &singular].contains(&&called) || short.any(|short| short == called) {
            return Ok(full);
        }
        plurals.push(names.plural);
    }
    Err(format!("there is none of this name; there are {}", plurals.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_has_the_names_that_kubectl_knows() {
        for called in ["pki", "PKI", "pkis", "pkis.config.openshift.io"] {
            assert_eq!(full_name(called).unwrap(), "pkis.config.openshift.io");
        }
        assert_eq!(full_name("co").unwrap(), "clusteroperators.config.openshift.io");
        assert_eq!(full_name("KubeAPIServer").unwrap(), "kubeapiservers.operator.openshift.io");
        let error = full_name("pod").unwrap_err();
        for it in crds() {
            assert!(error.contains(&it.spec.names.plural), "{error}");
            assert_eq!(full_name(&it.spec.names.kind).unwrap(), it.metadata.name.unwrap());
        }
    }
}
