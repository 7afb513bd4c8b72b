//! `perennial crds`: the CustomResourceDefinitions that Perennial needs.

use std::io::Write;
use std::path::PathBuf;

use perennial_api::{crd, crds};

use crate::install::staging::replace_file;

/// Print the CustomResourceDefinitions that Perennial needs
///
/// The PKI resource chooses keys. The others are kinds of OpenShift, with only the fields that Perennial reads or writes,
/// for clusters that are not OpenShift.
///
/// Use `kubectl create`, not `kubectl apply`. OpenShift, and clusters with an operator of OpenShift, have their own, more
/// complete definitions. `create` leaves existing definitions unchanged, creates the others, and fails at the end if a
/// definition exists. `apply` would overwrite them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial crds | kubectl create -f -       create all absent definitions\n  \
    perennial crds pki | kubectl create -f -   create one definition\n  \
    perennial crds featuregate network         print two definitions\n  \
    perennial crds --out deploy/crds           write one file for each\n\n\
    Exit codes:\n  \
    0   success\n  \
    1   failure\n  \
    2   wrong usage, or unknown name")]
pub(crate) struct Args {
    /// A kind, a singular, plural or short name, or a full name such as pkis.config.openshift.io [default: all]
    #[arg(value_name = "NAME", value_parser = full_name)]
    names: Vec<String>,

    /// Write one file for each definition to this existing directory instead of printing
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints the definitions as YAML, or writes them to files.
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

/// Returns the full name of a definition, found by any name that kubectl accepts.
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
    Err(format!("unknown definition; accepted are {}", plurals.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_found_by_every_name_that_kubectl_accepts() {
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
